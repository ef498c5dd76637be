//! What processes that share a port tell each other, for any values and any bytes: questions, echoes,
//! the steering program, and the lines of `uroce counters`.

use std::net::IpAddr;

use proptest::prelude::*;

use super::echo::{ECHO, Echo};
use super::report::{Counts, DeviceReport, Line, PairReport};
use super::steering::{Members, QUESTION, Question, program};

/// What the kernel's interpreter returns for a datagram's payload; 0 where it reads beyond the end
/// (linux/net/core/filter.c).
fn run(program: &[libc::sock_filter], datagram: &[u8]) -> u32 {
    let bytes = |at: u32, count: usize| {
        let bytes = datagram.get(at as usize..at as usize + count)?;
        Some(bytes.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)))
    };
    let (mut at, mut loaded) = (0, 0);
    loop {
        let step = &program[at];
        at += 1;
        let read = match step.code {
            0x20 => bytes(step.k, 4),
            0x28 => bytes(step.k, 2),
            0x30 => bytes(step.k, 1),
            0x15 => {
                at += usize::from(if loaded == step.k { step.jt } else { step.jf });
                continue;
            }
            0x06 => return step.k,
            0x16 => return loaded,
            other => panic!("instruction {other:#x}"),
        };
        let Some(word) = read else { return 0 };
        loaded = word;
    }
}

fn members() -> impl Strategy<Value = Members> {
    // Each slot once: a slot has one owner.
    proptest::sample::subsequence((1..=255u8).collect::<Vec<_>>(), 0..256)
        .prop_shuffle()
        .prop_flat_map(|slots| {
            let silent = proptest::collection::vec(proptest::bool::weighted(0.1), slots.len());
            silent.prop_map(move |silent| {
                let pairs = slots.iter().zip(silent);
                pairs.map(|(slot, silent)| (!silent).then_some(*slot)).collect()
            })
        })
}

proptest! {
    #[test]
    fn a_question_comes_back_and_nothing_else_is_one(
        index in any::<u16>(),
        slot in any::<u8>(),
        number in any::<u32>(),
        bytes in proptest::collection::vec(any::<u8>(), 0..20),
    ) {
        let question = Question { index, slot, number };
        let mut datagram = [0xee; QUESTION];
        question.write(&mut datagram);
        prop_assert_eq!(Question::parse(&datagram), Some(question));
        prop_assert_eq!(Echo::parse(&datagram), None);
        for length in 0..QUESTION {
            prop_assert_eq!(Question::parse(&datagram[..length]), None);
        }
        prop_assert_eq!(Question::parse(&bytes), None, "its first four bytes are the magic");
    }

    #[test]
    fn an_echo_comes_back_and_nothing_else_is_one(
        slot in any::<u8>(),
        number in any::<u32>(),
        bytes in proptest::collection::vec(any::<u8>(), 0..20),
    ) {
        let echo = Echo { slot, number };
        let mut datagram = [0xee; ECHO];
        echo.write(&mut datagram);
        prop_assert_eq!(Echo::parse(&datagram), Some(echo));
        prop_assert_eq!(Question::parse(&datagram), None);
        for length in 0..ECHO {
            prop_assert_eq!(Echo::parse(&datagram[..length]), None);
        }
        prop_assert_eq!(Echo::parse(&bytes), None);
    }

    #[test]
    fn the_program_sends_each_slot_to_its_member_and_each_question_to_its_index(
        members in members(),
        mut packet in proptest::collection::vec(any::<u8>(), 16..40),
        index in any::<u16>(),
        number in any::<u32>(),
    ) {
        let program = program(&members);
        prop_assert!(program.len() <= libc::BPF_MAXINSNS as usize, "the kernel takes no longer one");
        // 0xff is no opcode.
        packet[0] &= 0x7f;
        for slot in 0..=255 {
            packet[5] = slot;
            let owner = members.iter().position(|member| *member == Some(slot));
            let expected = owner.map_or(u32::MAX, |index| index as u32);
            prop_assert_eq!(run(&program, &packet), expected);
            let mut echo = [0; ECHO];
            Echo { slot, number }.write(&mut echo);
            prop_assert_eq!(run(&program, &echo), expected);
        }
        let mut question = [0; QUESTION];
        Question { index, slot: packet[6], number }.write(&mut question);
        prop_assert_eq!(run(&program, &question), u32::from(index));
    }
}

fn counts() -> impl Strategy<Value = Counts> {
    proptest::collection::btree_map(".{0,12}", any::<u64>(), 0..6)
}

fn line() -> impl Strategy<Value = Line> {
    let texts = any::<[String; 2]>();
    let device = (texts, proptest::option::of(any::<String>()), any::<(u32, u64, u32)>(), counts())
        .prop_map(|([program, device], interface, (process, time, pairs), counters)| {
            let queue_pairs = pairs as usize;
            DeviceReport { process, program, device, interface, time, queue_pairs, counters }
        });
    let peer = proptest::option::of(any::<IpAddr>());
    let pair = (any::<[String; 2]>(), any::<(u32, Option<u32>)>(), peer, counts()).prop_map(
        |([kind, state], (number, destination), peer, counters)| PairReport {
            number,
            kind,
            state,
            destination,
            peer,
            counters,
        },
    );
    prop_oneof![
        device.prop_map(Line::Device),
        pair.prop_map(Line::QueuePair),
        any::<String>().prop_map(Line::Refused),
        Just(Line::End),
    ]
}

proptest! {
    #[test]
    fn any_line_is_read_as_it_was_written_and_is_one_line(line in line()) {
        let text = serde_json::to_string(&line).expect("it can be written");
        prop_assert!(!text.contains(['\n', '\r']));
        prop_assert_eq!(serde_json::from_str::<Line>(&text).expect("ours"), line);
        for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
            prop_assert!(serde_json::from_str::<Line>(&text[..end]).is_err(), "cut at {end}");
        }
    }
}
