//! The addresses that pingpong programs tell each other: what is read is what was meant.

// The program's own files.
#[allow(dead_code, reason = "only what reads and writes addresses is used here")]
#[path = "../../src/cli/pingpong/handshake.rs"]
mod exchange;
#[allow(dead_code, reason = "as above")]
#[path = "../../src/cli/pingpong/shared_handshake.rs"]
mod shared;

// By this name the second file knows the first.
use exchange as handshake;

/// As a peer's bytes become text.
pub fn handshake(data: &[u8]) {
    let text = data.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(text);
    match exchange::parse(&text) {
        Ok(endpoint) => same(&text, &exchange::format(&endpoint)),
        Err(error) => told(&error),
    }
    match shared::parse_xrc(&text) {
        Ok(address) => same(&text, &shared::format_xrc(&address)),
        Err(error) => told(&error),
    }
}

/// All but the LID, which means nothing here, and the case of digits.
fn same(read: &str, written: &str) {
    let (lid, rest) = read.split_at(4);
    assert!(lid.bytes().all(|digit| digit.is_ascii_hexdigit()), "{read}");
    assert_eq!(rest.to_ascii_lowercase(), written[4..]);
}

/// One line of plain characters, whatever the peer sent.
fn told(error: &handshake::HandshakeError) {
    let text = error.to_string();
    assert!(!text.chars().any(char::is_control), "{text:?}");
}
