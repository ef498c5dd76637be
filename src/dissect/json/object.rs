//! JSON written straight into a buffer: no tree in between, so that a line costs no more than its
//! characters.

use std::fmt::{self, Write};

/// An object in the making. Keys are plain names that need no escapes.
pub(super) struct Object<'b> {
    out: &'b mut Vec<u8>,
    is_empty: bool,
}

impl<'b> Object<'b> {
    /// Writes `{`, what `fill` writes, `}`.
    pub(super) fn write(out: &mut Vec<u8>, fill: impl FnOnce(&mut Object<'_>)) {
        out.push(b'{');
        fill(&mut Object { out, is_empty: true });
        out.push(b'}');
    }

    fn key(&mut self, key: &str) -> &mut Vec<u8> {
        if !self.is_empty {
            self.out.push(b',');
        }
        self.is_empty = false;
        self.out.push(b'"');
        self.out.extend_from_slice(key.as_bytes());
        self.out.extend_from_slice(b"\":");
        self.out
    }

    pub(super) fn number(&mut self, key: &str, value: impl Into<u64>) {
        put_number(self.key(key), value.into());
    }

    pub(super) fn optional(&mut self, key: &str, value: Option<impl Into<u64>>) {
        if let Some(value) = value {
            self.number(key, value);
        }
    }

    pub(super) fn flag(&mut self, key: &str, value: bool) {
        let text: &[u8] = if value { b"true" } else { b"false" };
        self.key(key).extend_from_slice(text);
    }

    pub(super) fn null(&mut self, key: &str) {
        self.key(key).extend_from_slice(b"null");
    }

    /// A text of any characters.
    pub(super) fn string(&mut self, key: &str, value: &str) {
        put_string(self.key(key), value);
    }

    /// Something whose text needs no escapes: a number in a string, an address.
    pub(super) fn plain(&mut self, key: &str, value: impl fmt::Display) {
        let out = self.key(key);
        out.push(b'"');
        show(out, value);
        out.push(b'"');
    }

    /// A number that is written as it shows itself, such as a fraction.
    pub(super) fn shown_number(&mut self, key: &str, value: impl fmt::Display) {
        show(self.key(key), value);
    }

    /// `0x` and so many digits, as a string.
    pub(super) fn hex(&mut self, key: &str, value: u64, digits: u32) {
        let out = self.key(key);
        out.extend_from_slice(b"\"0x");
        for digit in (0..digits).rev() {
            out.push(DIGITS[(value >> (4 * digit) & 15) as usize]);
        }
        out.push(b'"');
    }

    /// Bytes as a string of digits.
    pub(super) fn bytes(&mut self, key: &str, bytes: &[u8]) {
        let out = self.key(key);
        out.push(b'"');
        put_hex(out, bytes);
        out.push(b'"');
    }

    /// `aa:bb:cc:dd:ee:ff`.
    pub(super) fn mac(&mut self, key: &str, address: &[u8; 6]) {
        let out = self.key(key);
        out.push(b'"');
        for (index, byte) in address.iter().enumerate() {
            if index > 0 {
                out.push(b':');
            }
            put_hex(out, &[*byte]);
        }
        out.push(b'"');
    }

    pub(super) fn object(&mut self, key: &str, fill: impl FnOnce(&mut Object<'_>)) {
        Object::write(self.key(key), fill);
    }

    /// A list, each item written by `item`.
    pub(super) fn list<T>(
        &mut self,
        key: &str,
        items: impl IntoIterator<Item = T>,
        mut item: impl FnMut(&mut Vec<u8>, T),
    ) {
        let out = self.key(key);
        out.push(b'[');
        for (index, value) in items.into_iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            item(out, value);
        }
        out.push(b']');
    }
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

fn put_hex(out: &mut Vec<u8>, bytes: &[u8]) {
    for byte in bytes {
        out.extend([DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
}

pub(super) fn put_number(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

pub(super) fn put_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend([b'\\', character as u8]),
            control if control < ' ' => show(out, format_args!("\\u{:04x}", control as u32)),
            other => out.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.push(b'"');
}

fn show(out: &mut Vec<u8>, value: impl fmt::Display) {
    struct Bytes<'a>(&'a mut Vec<u8>);
    impl Write for Bytes<'_> {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.extend_from_slice(text.as_bytes());
            Ok(())
        }
    }
    // A vector takes everything.
    let _ = write!(Bytes(out), "{value}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_json_and_comes_back() {
        let mut out = Vec::new();
        Object::write(&mut out, |object| {
            object.number("most", u64::MAX);
            object.number("none", 0u8);
            object.string("text", "a \"quoted\"\\\n\u{1f}é");
            object.flag("yes", true);
            object.hex("key", 0xbeef, 8);
            object.mac("mac", &[0, 1, 0xab, 0xff, 4, 5]);
            object.bytes("bytes", &[0, 0xfe]);
            object.object("inner", |inner| inner.shown_number("half", 0.5));
            object.list("list", [1u64, 2], put_number);
            object.list("empty", [0u64; 0], put_number);
            object.null("nothing");
        });
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let expected = serde_json::json!({
            "most": u64::MAX, "none": 0, "text": "a \"quoted\"\\\n\u{1f}é", "yes": true,
            "key": "0x0000beef", "mac": "00:01:ab:ff:04:05", "bytes": "00fe",
            "inner": {"half": 0.5}, "list": [1, 2], "empty": [], "nothing": null,
        });
        assert_eq!(value, expected);
    }
}
