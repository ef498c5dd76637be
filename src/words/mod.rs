//! The typed facts of the engine in sentences: the only place where an error becomes text.
//!
//! ```text
//!   Failure (engine) ──▶ explain() ──▶ Explanation: headline, numbers, likely causes, what to do
//!   Record           ──▶ record()  ──▶ one line of a flight recorder
//!   a packet         ──▶ packet()  ──▶ one line of a trace
//! ```
//!
//! Everything here is pure: facts in, text out. Nothing is looked up, so that a sentence says how
//! things were when they went wrong and not how they are when somebody asks. `docs/errors.md` lists
//! every sentence; `tests/errors` makes each error happen and compares.

pub mod call;
mod denial;
mod fault;
mod flush;
mod local;
mod number;
mod packet;
mod record;
mod refused;
mod unanswered;

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::engine::{Cause, Dropped, Ends, Failure, History};
use crate::queue::{CompletionStatus, QueuePairKind};
use crate::wire::Qpn;

pub use number::{duration, milliseconds};
pub use packet::{Direction, malformed, packet, payload_of};
pub use record::{nak, record};

/// A number or a word that a program may want to have without reading the sentence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Fact {
    /// A number.
    Number(u64),
    /// A word, an address, or a number that is written in hexadecimal digits.
    Text(String),
}

impl From<u64> for Fact {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<u32> for Fact {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<u8> for Fact {
    fn from(number: u8) -> Self {
        Self::Number(number.into())
    }
}

impl From<String> for Fact {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// Why something failed, for people and for programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// A stable name of this sentence, such as `unanswered.silence`: a row of `docs/errors.md`.
    pub code: &'static str,
    /// How the work request completed, as verbs name it; nothing if only an event tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// The number of that status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status_number: Option<u8>,
    /// What happened, in one sentence.
    pub headline: String,
    /// More numbers of that moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// What usually lies behind it, the likeliest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<String>,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// The numbers by name.
    pub facts: BTreeMap<&'static str, Fact>,
}

impl Explanation {
    fn new(code: &'static str, headline: String) -> Self {
        Self {
            code,
            status: None,
            status_number: None,
            headline,
            detail: None,
            causes: Vec::new(),
            advice: None,
            facts: BTreeMap::new(),
        }
    }

    /// Why a work request completed as it did, from the history of its queue pair, if there is one.
    #[cfg(not(loom))]
    pub(crate) fn of_completion<E: std::error::Error>(
        history: Result<History, E>,
        completion: &crate::queue::Completion,
    ) -> Self {
        match history {
            Ok(history) => explain_status(&history, completion.id, completion.status),
            Err(error) => Self::unavailable(completion.status, &error),
        }
    }

    /// Nothing can be looked up.
    #[cfg(not(loom))]
    fn unavailable(status: CompletionStatus, error: &dyn std::error::Error) -> Self {
        Self::new("unavailable", format!("{status} ({}): {error}", status as u8))
            .status(Some(status))
    }

    fn detail(mut self, detail: String) -> Self {
        self.detail = Some(detail);
        self
    }

    fn because(mut self, cause: impl Into<String>) -> Self {
        self.causes.push(cause.into());
        self
    }

    fn because_if(self, applies: bool, cause: impl FnOnce() -> String) -> Self {
        if applies { self.because(cause()) } else { self }
    }

    fn advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    fn fact(mut self, name: &'static str, fact: impl Into<Fact>) -> Self {
        self.facts.insert(name, fact.into());
        self
    }

    fn status(mut self, status: Option<CompletionStatus>) -> Self {
        self.status = status.map(|status| status.to_string());
        self.status_number = status.map(|status| status as u8);
        self
    }

    /// A number of that moment by name, if it is one.
    pub fn number(&self, name: &str) -> Option<u64> {
        match self.facts.get(name) {
            Some(Fact::Number(number)) => Some(*number),
            _ => None,
        }
    }
}

impl fmt::Display for Explanation {
    /// One to four lines: what happened, the numbers, what is likely, what to do.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.headline)?;
        if let Some(detail) = &self.detail {
            write!(f, "\n{detail}")?;
        }
        match self.causes.as_slice() {
            [] => {}
            [only] => write!(f, "\nlikely: {only}")?,
            several => {
                f.write_str("\nlikely, in this order:")?;
                for (index, cause) in several.iter().enumerate() {
                    let separator = if index == 0 { "" } else { ";" };
                    write!(f, "{separator} ({}) {cause}", index + 1)?;
                }
            }
        }
        match &self.advice {
            Some(advice) => write!(f, "\nto do: {advice}"),
            None => Ok(()),
        }
    }
}

/// A failure in sentences.
pub fn explain(failure: &Failure) -> Explanation {
    let explanation = match &failure.cause {
        Cause::Unanswered(facts) => unanswered::unanswered(facts, &failure.ends),
        Cause::NotReady(facts) => unanswered::not_ready(facts, &failure.ends),
        Cause::Refused(facts) => refused::refused(facts, &failure.ends),
        Cause::WrongResponse(facts) => refused::wrong_response(facts, &failure.ends),
        Cause::WrongKind { psn, request, received } => {
            refused::wrong_kind(*psn, *request, *received, &failure.ends)
        }
        _ => local::local(failure).unwrap_or_else(|| fault::fault(failure)),
    };
    let explanation = explanation.status(failure.status);
    let explanation = with_ends(explanation, &failure.ends);
    match failure.id {
        Some(id) => explanation.fact("work_request", id),
        None => explanation,
    }
}

/// A failure as a trace tells it: whose, what, and why.
pub fn told(failure: &Failure) -> String {
    let number = failure.ends.number;
    let head = match (failure.status, failure.id) {
        (Some(status), Some(id)) => {
            let kind = failure.kind.filter(|kind| kind.is_receive());
            let what = if kind.is_some() { "receive" } else { "work request" };
            format!("queue pair {number}: {what} {id} ends with {status} ({})", status as u8)
        }
        _ => format!("queue pair {number} goes into error, and no completion tells why"),
    };
    format!("{head}\n{}", explain(failure))
}

/// Why a work request ended with a status that means failure: looked up in what its queue pair
/// remembers.
pub fn explain_status(history: &History, id: u64, status: CompletionStatus) -> Explanation {
    if status == CompletionStatus::WorkRequestFlushed {
        return flush::flushed(history, id);
    }
    let of_status = |failure: &&Failure| failure.status == Some(status);
    let mut failures = history.failures.iter().rev().filter(of_status);
    let newest = failures.clone().next();
    let found = failures.find(|failure| failure.id == Some(id)).or(newest);
    found.map_or_else(|| flush::forgotten(history, id, status), explain)
}

/// Why the queue pair has gone into error, if it remembers a reason.
pub fn explain_root(history: &History) -> Option<Explanation> {
    history.root.and_then(|root| history.failures.get(root)).map(explain)
}

/// Why a faulty message was last dropped, if one was (UC and UD, where that fails nothing).
pub fn explain_dropped(history: &History) -> Option<Explanation> {
    Some(dropped_for(&history.dropped?, &history.ends))
}

/// A dropped message as a trace tells it: whose, and why.
pub fn told_dropped(dropped: &Dropped) -> String {
    let number = dropped.ends.number;
    let why = dropped_for(&dropped.cause, &dropped.ends);
    format!("queue pair {number} drops a message, and more of the kind without a word\n{why}")
}

fn dropped_for(cause: &Cause, ends: &Ends) -> Explanation {
    with_ends(fault::of_cause(cause, None, ends), ends)
}

fn with_ends(explanation: Explanation, ends: &Ends) -> Explanation {
    let mut explanation = explanation
        .fact("queue_pair", ends.number.to_string())
        .fact("transport", ends.transport.to_string());
    for (name, address) in [("own_address", ends.own), ("peer_address", ends.peer)] {
        if let Some(address) = address {
            explanation = explanation.fact(name, address.to_string());
        }
    }
    if let Some(number) = ends.peer_number {
        explanation = explanation.fact("peer_queue_pair", number.to_string());
    }
    if let Some(mtu) = ends.path_mtu {
        explanation = explanation.fact("path_mtu", mtu.bytes() as u64);
    }
    explanation.fact("largest_received", ends.largest_received)
}

/// `queue pair 0x01000a at 10.0.0.2`.
fn peer(ends: &Ends) -> String {
    let number = ends.peer_number.unwrap_or(Qpn::new(0));
    match ends.peer {
        Some(address) if ends.transport != QueuePairKind::Ud => {
            format!("queue pair {number} at {address}")
        }
        _ => "the peer".to_owned(),
    }
}
