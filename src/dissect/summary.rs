//! Counts over a file.

use super::{Frame, Issue, Issues, RdmaPacket, Verdict};
use crate::wire::Opcode;

/// The place of packets whose opcode is not known, or that end before it.
const UNKNOWN: usize = 256;

/// What a file holds, in numbers.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Frames of any kind.
    pub frames: u64,
    /// RDMA packets: segments count one by one.
    pub rdma_frames: u64,
    /// Packets with a right ICRC.
    pub icrc_ok: u64,
    /// Packets with a wrong one.
    pub icrc_bad: u64,
    /// RDMA packets that could not be judged.
    pub icrc_unchecked: u64,
    /// Frames or packets that are wrong.
    pub wrong: u64,
    /// By opcode byte.
    opcodes: [u64; UNKNOWN + 1],
    issues: [u64; Issue::ALL.len()],
}

impl Default for Summary {
    fn default() -> Self {
        Self {
            frames: 0,
            rdma_frames: 0,
            icrc_ok: 0,
            icrc_bad: 0,
            icrc_unchecked: 0,
            wrong: 0,
            opcodes: [0; UNKNOWN + 1],
            issues: [0; Issue::ALL.len()],
        }
    }
}

impl Summary {
    /// Counts a frame with all its packets.
    pub fn count(&mut self, frame: &Frame<'_>) {
        self.count_frame();
        let mut is_empty = true;
        for packet in frame.packets() {
            is_empty = false;
            self.count_packet(frame, Some(&packet));
        }
        if is_empty {
            self.count_packet(frame, None);
        }
    }

    /// Counts a frame whose packets are counted one by one.
    pub fn count_frame(&mut self) {
        self.frames += 1;
    }

    /// Counts one packet of a frame; `None` for a frame that has none.
    pub fn count_packet(&mut self, frame: &Frame<'_>, packet: Option<&RdmaPacket<'_>>) {
        self.wrong += u64::from(frame.is_wrong(packet));
        let found = packet.copied().unwrap_or_default();
        self.count_issues(frame.issues.union(found.issues));
        if !frame.is_rdma() {
            return;
        }
        self.rdma_frames += 1;
        let known = found.bth.filter(|_| found.opcode.is_some());
        self.opcodes[known.map_or(UNKNOWN, |bth| bth.opcode.into())] += 1;
        match found.icrc.verdict {
            Verdict::Ok => self.icrc_ok += 1,
            Verdict::Bad => self.icrc_bad += 1,
            Verdict::Unchecked => self.icrc_unchecked += 1,
        }
    }

    fn count_issues(&mut self, issues: Issues) {
        if issues.is_empty() {
            return;
        }
        for issue in issues.iter() {
            self.issues[issue as usize] += 1;
        }
    }

    /// The opcodes that occur, by name, with how often.
    pub fn opcodes(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let name = |byte: usize| {
            u8::try_from(byte).ok().and_then(Opcode::from_byte).map_or("UNKNOWN", Opcode::name)
        };
        let counts = self.opcodes.iter().enumerate().filter(|(_, count)| **count > 0);
        counts.map(move |(byte, count)| (name(byte), *count))
    }

    /// The issues that occur, with how often.
    pub fn issues(&self) -> impl Iterator<Item = (Issue, u64)> {
        let counts = Issue::ALL.iter().copied().zip(self.issues);
        counts.filter(|(_, count)| *count > 0)
    }
}
