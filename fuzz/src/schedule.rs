//! Schedules of the simulator: which fate each of the first packets of a small scenario meets, far
//! deeper than they can be tried exhaustively. The oracle judges.

use uroce::sim::{Exhaustive, Scenario, Script, ScriptedFate, Selection};
use uroce::time::MICROSECOND;

use super::input::Input;

/// Fates of a schedule.
const DEPTH: usize = 64;
/// A packet may be lost or damaged so often in a row without an end of its retries (7).
const HARMLESS: usize = 6;
/// Held back for less than a window, for more than timers wait, and in between.
const HOLDS: [u64; 4] =
    [60 * MICROSECOND, 5 * MICROSECOND, 1_500 * MICROSECOND, 9_000 * MICROSECOND];

pub fn schedule(data: &[u8]) {
    let mut input = Input::new(data);
    let (choice, options) = (input.byte(), input.byte());
    let fates: Vec<_> = input
        .rest()
        .iter()
        .take(DEPTH)
        .map(|byte| ScriptedFate::ALL[usize::from(*byte) % ScriptedFate::ALL.len()])
        .collect();
    let scenario = scripted(choice, options, fates);
    let report = scenario.run();
    assert!(report.failure.is_none(), "{}: {:?}", scenario.name, report.failure);
}

/// The scenario of this number, with fates for the packets that the options select.
fn scripted(choice: u8, options: u8, fates: Vec<ScriptedFate>) -> Scenario {
    let all = Exhaustive::all();
    let chosen = &all[usize::from(choice) % all.len()];
    let mut scenario = chosen.schedule("").unwrap_or_else(|| unreachable!("no letter is wrong"));
    let own = scenario.network.script.take();
    let mut script = own.unwrap_or_else(|| Script::new(Selection::All, Vec::new()));
    // A scenario whose rest is not delivered is about just that: its own choices stay.
    if options & 0x80 != 0 && script.rest == ScriptedFate::Deliver {
        script.selection = [Selection::All, Selection::Requests, Selection::Answers]
            [usize::from(options & 0x0f) % 3];
        script.hold = HOLDS[usize::from(options >> 4 & 3)];
    }
    let is_lost = |fate: &&ScriptedFate| matches!(fate, ScriptedFate::Drop | ScriptedFate::Corrupt);
    let harmful = fates.iter().filter(is_lost).count() + script.lost_requests;
    script.fates = fates;
    scenario.network.script = Some(script);
    if harmful > HARMLESS || options & 0x80 != 0 {
        for connection in &mut scenario.connections {
            connection.may_exhaust_retries = true;
        }
        for link in scenario.shared.iter_mut().flat_map(|shared| &mut shared.links) {
            link.may_exhaust = true;
        }
    }
    scenario
}
