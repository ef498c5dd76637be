//! Packet stories: a scripted peer against one engine, exact frames in and out at exact times.
//!
//! Every story is told for several first PSNs, so that the wrap and the edge of the half-space are
//! in all of them. See `harness` for how to read one.

mod acknowledgements;
mod amplification;
mod check_order;
mod congestion;
mod credits;
mod duplicates;
mod groups;
mod harness;
mod hostile;
mod lessons;
mod limits;
mod losses;
mod memory_windows;
mod not_ready;
mod on_demand;
#[path = "../common/pages.rs"]
mod pages;
mod placing;
mod queues;
mod registration;
mod requester_answers;
mod responder_faults;
mod rules;
mod segmentation;
mod sequence;
mod states;
mod timers;
mod transitions;
mod uc;
mod ud;
mod window;
mod xrc_initiator;
mod xrc_target;
