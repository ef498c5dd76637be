//! Requests that got no answer, or none but "not now".

use super::number::{bytes, duration, milliseconds, times};
use super::{Explanation, peer};
use crate::engine::{Ends, NotReady, Unanswered};

/// Retries used up.
pub(super) fn unanswered(facts: &Unanswered, ends: &Ends) -> Explanation {
    let explanation = if facts.outside > 0 {
        outside(facts, ends)
    } else if facts.sequence_naks > 0 {
        asked_again(facts, ends)
    } else if facts.acknowledged {
        gone_silent(facts, ends)
    } else {
        silence(facts, ends)
    };
    explanation
        .detail(timers(facts))
        .fact("operation", facts.kind.to_string())
        .fact("first_psn", facts.first.to_string())
        .fact("last_psn", facts.last.to_string())
        .fact("oldest_psn", facts.oldest.to_string())
        .fact("tries", facts.tries)
        .fact("waited_ns", facts.waited)
        .fact("timeout", facts.timeout)
        .fact("timeout_ns", facts.timeout_asked)
        .fact("timeout_used_ns", facts.timeout_used)
        .fact("retry_cnt", facts.retry_count)
        .fact("sequence_naks", facts.sequence_naks)
        .fact("answers_outside", facts.outside)
}

fn sent(facts: &Unanswered, ends: &Ends) -> String {
    let Unanswered { kind, oldest, first, last, tries, waited, .. } = facts;
    let part = if first == last { String::new() } else { format!(" (of {first} to {last})") };
    let (peer, often, time) = (peer(ends), times(u64::from(*tries)), duration(*waited));
    format!("{kind} to {peer}: PSN {oldest}{part} was sent {often} in {time}")
}

fn timers(facts: &Unanswered) -> String {
    let Unanswered { timeout, timeout_asked, timeout_used, retry_count, .. } = *facts;
    let asked = milliseconds(timeout_asked);
    let used = if timeout_asked == timeout_used {
        String::new()
    } else {
        format!(", of which this device makes {}", milliseconds(timeout_used))
    };
    if timeout == 0 {
        return format!("timeout 0 means no local ACK timeout, retry_cnt {retry_count}");
    }
    format!(
        "the local ACK timeout is {asked} (timeout {timeout}: 4.096 µs × 2^{timeout}){used}, \
         retry_cnt {retry_count}; shorter probes do not count as retries"
    )
}

/// Nothing ever came.
fn silence(facts: &Unanswered, ends: &Ends) -> Explanation {
    let what = if ends.heard {
        "the peer has sent requests of its own, but has never acknowledged one of ours"
    } else {
        "nothing has ever come back"
    };
    let number = ends.peer_number.unwrap_or_default();
    let address = ends.peer.map_or_else(|| "the peer".to_owned(), |peer| peer.to_string());
    Explanation::new("unanswered.silence", format!("{}, and {what}", sent(facts, ends)))
        .because(format!("no process of {address} listens on UDP port 4791, or it has ended"))
        .because(format!("{address} is the wrong address: compare GID and GID index of both ends"))
        .because(format!(
            "queue pair {number} there is not in RTR yet, does not exist, is of another transport, or was connected to \
             another address than ours{}",
            ends.own.map_or_else(String::new, |own| format!(" ({own})"))
        ))
        .because("a firewall drops UDP port 4791 in one direction")
        .because_if(facts.first != facts.last, || too_large(ends))
        .advice(
            "see the peer's queue pair state and history; capture UDP port 4791 at both ends \
             (UROCE_PCAP=file) to see where packets end",
        )
}

/// It worked before.
fn gone_silent(facts: &Unanswered, ends: &Ends) -> Explanation {
    let headline =
        format!("{}, and nothing came back; earlier requests were answered", sent(facts, ends));
    Explanation::new("unanswered.gone_silent", headline)
        .because("the peer's process has ended, or its queue pair was reset or destroyed")
        .because("the network between the ends was interrupted for longer than the retries last")
        .because_if(facts.first != facts.last, || too_large(ends))
        .advice(
            "ask the other end why it stopped; a longer timeout or retry_cnt bridges longer \
             interruptions",
        )
}

fn too_large(ends: &Ends) -> String {
    let size = ends.path_mtu.map_or(0, |mtu| mtu.bytes() as u64);
    format!(
        "packets with {} of payload do not fit the network between the ends: try a smaller path \
         MTU",
        bytes(size)
    )
}

/// The peer asks for the same packet again and again.
fn asked_again(facts: &Unanswered, ends: &Ends) -> Explanation {
    let naks = times(facts.sequence_naks.into());
    let headline = format!(
        "{}, and the peer asked for it again {naks} (NAK 0x60, PSN sequence error)",
        sent(facts, ends)
    );
    Explanation::new("unanswered.sequence_naks", headline)
        .because("the network loses this packet time and again: more loss than retry_cnt bears")
        .because(too_large(ends))
        .advice("look at the counters of drops on the way; set the same MTU everywhere")
}

/// Answers came to something else.
fn outside(facts: &Unanswered, ends: &Ends) -> Explanation {
    let Unanswered { outside, outside_psn, .. } = facts;
    let (answers, verb) = if *outside == 1 { ("answer", "was") } else { ("answers", "were") };
    let headline = format!(
        "{}, and {outside} {answers} came that {verb} for other packets, last for PSN \
         {outside_psn}",
        sent(facts, ends)
    );
    Explanation::new("unanswered.outside", headline)
        .because(format!(
            "first PSNs differ: our sq_psn must be the peer's rq_psn; the peer stands at PSN \
             {outside_psn}"
        ))
        .because(
            "the peer's queue pair was connected before and still has the PSN of that connection: \
             take both ends through RESET",
        )
        .advice("compare sq_psn of this end with rq_psn of the other")
}

/// Receiver not ready, for longer than the retries last.
pub(super) fn not_ready(facts: &NotReady, ends: &Ends) -> Explanation {
    let NotReady { kind, psn, refusals, timer, retry_count, waited } = *facts;
    let (peer, often, time) = (peer(ends), times(refusals.into()), duration(waited));
    let pause = milliseconds(timer.nanos());
    Explanation::new(
        "not_ready",
        format!("{kind} to {peer}: PSN {psn} found no receive {often} in {time} (RNR NAK)"),
    )
    .detail(format!(
        "the peer asked for a pause of {pause} each time (min_rnr_timer {}), rnr_retry \
         {retry_count}",
        timer.code()
    ))
    .because("the peer's application posts receives too late, or fewer than we send")
    .because(format!("its min_rnr_timer of {pause} is too short for it"))
    .advice(
        "post receives at the peer before sending; or set rnr_retry 7, which waits without end, \
         here, or a longer min_rnr_timer at the peer",
    )
    .fact("operation", kind.to_string())
    .fact("psn", psn.to_string())
    .fact("refusals", refusals)
    .fact("pause_ns", timer.nanos())
    .fact("min_rnr_timer", timer.code())
    .fact("rnr_retry", retry_count)
    .fact("waited_ns", waited)
}
