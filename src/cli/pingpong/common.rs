//! What both kinds of pingpong do alike: the message, and waiting for completions.

use uroce::verbs::{Completion, CompletionChannel, CompletionQueue};

use super::PingpongArgs;
use crate::cli::output::Failure;
use crate::cli::waiting::Waiting;

/// What both programs fill their buffers with.
const FILLER: u8 = 0x7b;
/// With checking, the first byte of each page is zero.
const PAGE: usize = 4096;

/// The message that goes to and fro.
pub(super) fn message(args: &PingpongArgs) -> Vec<u8> {
    let mut message = vec![FILLER; args.size as usize];
    if args.chk {
        message.iter_mut().step_by(PAGE).for_each(|byte| *byte = 0);
    }
    message
}

/// What lies in the buffer at first: who begins has the message, and the other end must not find it
/// there before it has come.
pub(super) fn first_content(message: &[u8], begins: bool) -> Vec<u8> {
    if begins { message.to_vec() } else { vec![FILLER; message.len()] }
}

/// The next completions; 0 if none has come for as long as the options have patience.
pub(super) fn next_completions(
    args: &PingpongArgs,
    completions: &CompletionQueue,
    channel: &CompletionChannel,
    batch: &mut [Completion],
) -> Result<usize, Failure> {
    let waiting = Waiting { events: args.events, patience: args.patience() };
    waiting.next(completions, channel, batch, || Ok(()))
}
