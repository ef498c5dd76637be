//! A line for each entry of a flight recorder.

use std::fmt;

use super::number::{duration, times};
use crate::engine::{History, HistoryEvent, Record, TimerKind};
use crate::time::MICROSECOND;
use crate::wire::{NakCode, Psn, Syndrome};

/// One entry in words, with its time counted from `start`.
pub fn record(record: &Record, start: crate::time::Instant) -> String {
    let time = |at: crate::time::Instant| format!("{:>12.6}", at.since(start) as f64 / 1e9);
    let many = match record.count {
        1 => String::new(),
        u16::MAX => format!(", 65535 times or more, until {}", time(record.last).trim_start()),
        count => format!(", {} until {}", times(count.into()), time(record.last).trim_start()),
    };
    format!("{}  {}{many}", time(record.first), event(&record.event))
}

impl fmt::Display for History {
    /// A line for each entry, oldest first; seconds count from the first entry.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(oldest) = self.records.first() else { return Ok(()) };
        for (index, entry) in self.records.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{}", record(entry, oldest.first))?;
        }
        Ok(())
    }
}

fn event(event: &HistoryEvent) -> String {
    match event {
        HistoryEvent::Sent { kind, first, last } => format!("sent {kind} {}", range(*first, *last)),
        HistoryEvent::SentAgain { kind, first, last } => {
            format!("sent again {kind} {}", range(*first, *last))
        }
        HistoryEvent::Received { kind, first, last } => {
            format!("received {kind} {}", range(*first, *last))
        }
        HistoryEvent::ReceivedNak { syndrome: code, psn } => {
            format!("received {} at PSN {psn}", syndrome(*code))
        }
        HistoryEvent::SentNak { syndrome: code, psn } => {
            format!("sent {} at PSN {psn}", syndrome(*code))
        }
        HistoryEvent::Dropped { reason, psn } => {
            format!("did not take the packet with PSN {psn}: {}", reason.name())
        }
        HistoryEvent::TimerExpired { timer, microseconds, oldest } => {
            timer_expired(*timer, *microseconds, *oldest)
        }
        HistoryEvent::StateChanged { from, to } => format!("went from {from} to {to}"),
        HistoryEvent::Completed { status, id } => {
            format!("completed work request {id} with {status} ({})", *status as u8)
        }
        HistoryEvent::CongestionNotified => "received CNP: the network is congested".to_owned(),
    }
}

fn timer_expired(timer: TimerKind, microseconds: u32, oldest: Psn) -> String {
    let after = match microseconds {
        u32::MAX => "more than an hour".to_owned(),
        value => duration(u64::from(value) * MICROSECOND),
    };
    match timer {
        TimerKind::Probe => format!("no answer to PSN {oldest} for {after}: asked again (probe)"),
        TimerKind::AckTimeout => {
            format!("no answer to PSN {oldest} for {after}: local ACK timeout")
        }
        TimerKind::NotReady => format!("the pause of {after} before PSN {oldest} is over"),
    }
}

fn range(first: Psn, last: Psn) -> String {
    if first == last { format!("PSN {first}") } else { format!("PSN {first} to {last}") }
}

/// `RNR NAK (0.64 ms)`, `NAK 0x62 (remote access error)`.
pub(super) fn syndrome(syndrome: Syndrome) -> String {
    match syndrome {
        Syndrome::Ack(_) => "ACK".to_owned(),
        Syndrome::RnrNak(timer) => {
            format!("RNR NAK (wait {})", super::milliseconds(timer.nanos()))
        }
        Syndrome::Nak(code) => format!("NAK 0x{:02x} ({})", 0x60 | code.to_code(), nak(code)),
        Syndrome::Reserved(byte) => format!("reserved syndrome 0x{byte:02x}"),
    }
}

/// Why a request was refused: `remote access error`.
pub const fn nak(code: NakCode) -> &'static str {
    match code {
        NakCode::PsnSequenceError => "PSN sequence error",
        NakCode::InvalidRequest => "invalid request",
        NakCode::RemoteAccessError => "remote access error",
        NakCode::RemoteOperationalError => "remote operational error",
        NakCode::InvalidRdRequest => "invalid RD request",
        NakCode::Reserved(_) => "reserved",
    }
}
