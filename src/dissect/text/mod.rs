//! The text form: a line a packet, a block with every bit, or the bytes that the ICRC covers.

mod block;
mod hex;
mod line;

pub use block::block;
pub use hex::{explanation, frame_bytes};
pub use line::{Line, line};
