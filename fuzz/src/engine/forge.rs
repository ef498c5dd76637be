//! Packets that may be anything, but look well: each header of the opcode is there, with values near
//! what would be right.

use uroce::queue::QueuePairKind;
use uroce::wire::icrc::{self, DONT_FRAGMENT};
use uroce::wire::{ExtendedHeader, Opcode};

use super::super::input::Input;
use super::Role;
use super::setup::{PEER, Victim};
use crate::pair::QKEY;

const CNP: u8 = 0x81;

impl Victim {
    /// BTH to pad.
    pub(super) fn forge(&self, input: &mut Input<'_>) -> Vec<u8> {
        let opcode = self.opcode(input);
        let shape = input.byte();
        let length = self.payload_length(opcode, shape >> 3, input);
        let pad = length.wrapping_neg() % 4;
        let to = match shape & 7 {
            6 => input.u32() & 0xff_ffff,
            7 => input.pick(&[0xff_ffff, 0, 1]),
            _ => self.queues.number().value(),
        };
        let flags = input.byte();
        let solicited_and_migration = if flags & 1 != 0 { flags & 0xc0 } else { 0x40 };
        let mut bytes = vec![opcode, solicited_and_migration | (pad as u8) << 4, 0xff, 0xff, 0];
        bytes[4] = if flags & 2 != 0 { flags & 0xc0 } else { 0 };
        bytes.extend(&to.to_be_bytes()[1..]);
        bytes.push(if flags & 4 != 0 { 0 } else { 0x80 });
        bytes.extend(&self.psn(input).to_be_bytes()[1..]);
        if let Some(opcode) = Opcode::from_byte(opcode) {
            for header in opcode.extended_headers() {
                self.header(header, input, &mut bytes);
            }
        }
        bytes.extend(std::iter::repeat_n(0x5a, length + pad));
        bytes
    }

    pub(super) fn icrc(&self, index: u16, packet: &[u8]) -> [u8; 4] {
        icrc::of_datagram(&self.flow, index, DONT_FRAGMENT, packet)
    }

    fn opcode(&self, input: &mut Input<'_>) -> u8 {
        const ANSWERS: [u8; 8] = [17, 17, 16, 13, 14, 15, 18, 17];
        let class = match self.kind {
            QueuePairKind::Rc => 0,
            QueuePairKind::Uc => 0x20,
            QueuePairKind::Ud => 0x60,
            QueuePairKind::XrcInitiator | QueuePairKind::XrcTarget => 0xa0,
        };
        let choice = input.byte();
        match (choice >> 5, self.role) {
            (7, _) => input.byte(),
            (6, _) if choice & 7 == 0 => CNP,
            (0..=4, Role::Requester) => class | ANSWERS[usize::from(choice) % ANSWERS.len()],
            _ => class | choice & 0x1f,
        }
    }

    /// The next one that is expected, or one that went out, or near them.
    fn psn(&self, input: &mut Input<'_>) -> u32 {
        let choice = input.byte();
        let status = self.engine.query_queue_pair(self.queues.number()).ok();
        let attributes = status.map(|status| status.attributes).unwrap_or_default();
        let next = match self.role {
            Role::Responder => attributes.receive_psn,
            Role::Requester => attributes.send_psn,
        };
        let next = next.map_or(0, |psn| psn.value());
        let base = match (self.role, self.recent.len()) {
            (Role::Requester, count @ 1..) if choice & 0x80 == 0 => {
                self.recent[usize::from(choice >> 3 & 0xf) % count]
            }
            _ => next,
        };
        let far = || 0x80_0000 | u32::from(choice >> 3);
        let step = match choice & 7 {
            0..=3 => 0,
            4 => 1,
            5 => 0xff_ffff,
            6 => far(),
            _ => input.byte() as i8 as u32,
        };
        base.wrapping_add(step) & 0xff_ffff
    }

    fn payload_length(&self, opcode: u8, choice: u8, input: &mut Input<'_>) -> usize {
        let has_payload = Opcode::from_byte(opcode).is_none_or(Opcode::has_payload);
        let mtu = self.mtu.bytes();
        match (has_payload, choice) {
            (false, 0..=30) => 0,
            (false, _) => usize::from(input.byte()),
            (true, 0..=7) => mtu,
            (true, 8..=11) => 8,
            (true, 12..=15) => 64,
            (true, _) => {
                let all = [0, 1, 3, 4, 7, 9, 255, mtu - 1, mtu + 1, mtu + 4, 2 * mtu, 4096];
                input.pick(&all)
            }
        }
    }

    fn header(&self, header: ExtendedHeader, input: &mut Input<'_>, bytes: &mut Vec<u8>) {
        match header {
            ExtendedHeader::Rdeth => bytes.extend(input.u32().to_be_bytes()),
            ExtendedHeader::Deth => {
                let qkey = input.pick(&[QKEY.value(), QKEY.value(), QKEY.value(), 0, 0x8000_0000]);
                bytes.extend(qkey.to_be_bytes());
                bytes.extend(input.pick(&[PEER, PEER, PEER, 0, 1, 0xff_ffff]).to_be_bytes());
            }
            ExtendedHeader::Xrceth => {
                let numbers = self.shared.iter().filter_map(|queue| queue.number());
                let mut numbers: Vec<u32> = numbers.map(|number| number.value()).collect();
                numbers.extend([0, 0xff_ffff]);
                bytes.extend(input.pick(&numbers).to_be_bytes());
            }
            ExtendedHeader::Reth => {
                self.place(input, bytes);
                let lengths =
                    [8, 64, 1024, 4096, 0, 1, 256, 2048, 4097, 1 << 31, (1 << 31) + 1, u32::MAX];
                bytes.extend(input.pick(&lengths).to_be_bytes());
            }
            ExtendedHeader::AtomicEth => {
                self.place(input, bytes);
                bytes.extend([0x11; 8]);
                bytes.extend([input.pick(&[0xa5, 0x11, 0x5a]); 8]);
            }
            ExtendedHeader::Aeth => {
                let syndrome = input.byte();
                bytes.push(if syndrome & 0x80 != 0 { 0x1f } else { syndrome });
                let msn = input.pick(&[0, 1, 2, 3, 4, 5, 0x7f_ffff, 0x80_0000, 0xff_ffff]);
                bytes.extend(&u32::to_be_bytes(msn)[1..]);
            }
            ExtendedHeader::AtomicAckEth => bytes.extend([0x22; 8]),
            ExtendedHeader::ImmDt => bytes.extend([1, 2, 3, 4]),
            ExtendedHeader::Ieth => bytes.extend(self.key(input).to_be_bytes()),
            ExtendedHeader::Feth => {
                let value = input.byte();
                bytes.extend([0, 0, 0, if value & 0x80 == 0 { value & 0x33 } else { value }]);
            }
            ExtendedHeader::Reserved => bytes.extend([0; 16]),
        }
    }

    fn key(&self, input: &mut Input<'_>) -> u32 {
        input.pick(&self.keys).value()
    }

    /// Address and key; most often of one region.
    fn place(&self, input: &mut Input<'_>, bytes: &mut Vec<u8>) {
        let choice = input.byte();
        let index = usize::from(choice & 3);
        let (base, key) = match choice >> 6 {
            3 => (input.pick(&self.addresses), self.key(input)),
            _ => (self.addresses[2 * index], self.keys[index].value()),
        };
        let offset = match choice >> 2 & 3 {
            0 | 1 => 0,
            2 => u64::from(input.byte()) * 8,
            _ => (input.byte() as i8 as i64 as u64).wrapping_add(0x1000),
        };
        bytes.extend(base.wrapping_add(offset).to_be_bytes());
        bytes.extend(key.to_be_bytes());
    }
}
