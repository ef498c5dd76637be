//! Names of environment variables that look like ours and are none: without a word they would have
//! no effect.

/// Variables that have an effect, and those that only tests look at.
const KNOWN: [&str; 9] = [
    "UROCE_DEVICE",
    "UROCE_LINK",
    "UROCE_PROVIDER",
    "UROCE_PCAP",
    "UROCE_FAULT",
    "UROCE_CONGESTION",
    "UROCE_TRACE",
    "UROCE_STRICT",
    "UROCE_RECEIVE_BUFFER",
];
/// Up to how many wrong letters a name is taken for a misspelt one.
const MISSPELT: usize = 2;
const OF_TESTS: [&str; 3] = ["UROCE_REQUIRE", "UROCE_TEST_", "UROCE_SIM_"];

/// A sentence for each variable that looks like one of ours and is none.
pub(super) fn unknown_variables(names: impl Iterator<Item = String>) -> Vec<String> {
    let ours = names.filter(|name| name.starts_with("UROCE_"));
    let unknown = ours.filter(|name| {
        let of_tests = OF_TESTS.iter().any(|prefix| name.starts_with(prefix));
        !KNOWN.contains(&name.as_str()) && !of_tests
    });
    unknown
        .map(|name| {
            let distances = KNOWN.iter().map(|known| (distance(known, &name), *known));
            let near = distances.filter(|(letters, _)| *letters <= MISSPELT);
            let meant = near.min().map_or_else(
                || format!("there are {}", KNOWN.join(", ")),
                |(_, known)| format!("did you mean {known}?"),
            );
            format!("{name} is no variable of uroce and has no effect; {meant}")
        })
        .collect()
}

/// Letters to add, take away or change to make one word of the other (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, letter) in one.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], index + 1);
        for (column, other) in other.bytes().enumerate() {
            let changed = diagonal + usize::from(letter != other);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_that_does_not_exist_is_noticed_with_the_nearest_that_does() {
        let names = ["UROCE_TRACES", "UROCE_PACP", "UROCE_TRACE", "UROCE_REQUIRE", "HOME"];
        let names = names.into_iter().chain(["UROCE_TEST_ROLE", "UROCE_SIM_SEEDS"]);
        assert_eq!(
            unknown_variables(names.map(str::to_owned)),
            [
                "UROCE_TRACES is no variable of uroce and has no effect; did you mean UROCE_TRACE?",
                "UROCE_PACP is no variable of uroce and has no effect; did you mean UROCE_PCAP?",
            ]
        );
        let other = unknown_variables(["UROCE_FOO".to_owned()].into_iter());
        assert!(other[0].contains("no effect; there are UROCE_DEVICE, UROCE_LINK, "), "{other:?}");
        assert_eq!(distance("kitten", "sitting"), 3);
    }

    #[test]
    fn the_list_is_that_of_the_environment() {
        let source = include_str!("environment.rs");
        let mut names: Vec<&str> =
            source.split("\"UROCE_").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        names.sort_unstable();
        names.dedup();
        let mut known = KNOWN.map(|name| name.trim_start_matches("UROCE_"));
        known.sort_unstable();
        assert_eq!(names, known);
    }
}
