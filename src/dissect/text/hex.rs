//! The bytes that an ICRC covers, with those marked that count as ones, and the CRC as it runs.

use super::super::{Explanation, Frame};

const ROW: usize = 16;
/// Rows of a long payload that are shown at its start and end.
const SHOWN_ROWS: usize = 4;

/// The lines of an explained ICRC.
pub fn explanation(explained: &Explanation) -> Vec<String> {
    let mut lines = vec![
        "  ICRC, step by step; bytes in [ ] are masked, so that routers may change them:"
            .to_owned(),
    ];
    for part in &explained.parts {
        lines.push(format!("  {}, {} bytes", part.name, part.bytes.len()));
        rows(&mut lines, &part.bytes, &part.masks);
        lines.push(format!("      running CRC 0x{:08x}", part.running));
    }
    let wire_order = |bytes: &[u8; 4]| bytes.map(|byte| format!("{byte:02x}")).join(" ");
    let complement = u32::from_le_bytes(explained.computed);
    lines.push(format!("  complement  0x{complement:08x}, least significant byte first:"));
    lines.push(format!("  computed    {}", wire_order(&explained.computed)));
    lines.push(format!("  found       {}", wire_order(&explained.wire)));
    if explained.computed == explained.wire {
        return lines;
    }
    if explained.mistakes.is_empty() {
        lines.push(
            "  cause       no usual mistake gives this: damage, or an unusual one".to_owned(),
        );
    }
    for mistake in &explained.mistakes {
        lines.push(format!("  cause       {}", mistake.text()));
    }
    lines
}

fn rows(lines: &mut Vec<String>, bytes: &[u8], masks: &[u8]) {
    let count = bytes.len().div_ceil(ROW);
    for (row, (bytes, masks)) in bytes.chunks(ROW).zip(masks.chunks(ROW)).enumerate() {
        if count > 2 * SHOWN_ROWS && row == SHOWN_ROWS {
            lines.push(format!("      … {} rows …", count - 2 * SHOWN_ROWS));
        }
        if count > 2 * SHOWN_ROWS && (SHOWN_ROWS..count - SHOWN_ROWS).contains(&row) {
            continue;
        }
        let mut line = format!("    {:04x} ", row * ROW);
        for (byte, mask) in bytes.iter().zip(masks) {
            match mask {
                0 => line.push_str(&format!(" {byte:02x} ")),
                _ => line.push_str(&format!("[{byte:02x}]")),
            }
        }
        lines.push(line.trim_end().to_owned());
    }
}

/// The whole frame, sixteen bytes a row.
pub fn frame_bytes(frame: &Frame<'_>) -> Vec<String> {
    let mut lines = vec![format!("  frame, {} bytes captured", frame.data.len())];
    rows(&mut lines, frame.data, &vec![0; frame.data.len()]);
    lines
}
