//! Counts under the names that were asked for.

use serde_json::{Map, Value};
use uroce::software::{CounterName, Counts, NameSet, OUTER_COUNTS};
use uroce::verbs::Counter;

use super::Names;

/// One count to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Whose name; nothing for our own.
    pub set: Option<NameSet>,
    /// The name.
    pub name: String,
    /// The count.
    pub count: u64,
    /// What it counts; empty for a name that this version does not know.
    pub meaning: &'static str,
}

/// The counts under the names asked for, in their order.
pub fn rows(counts: &Counts, names: Names) -> Vec<Row> {
    let mut rows = if names.own() { own_rows(counts) } else { Vec::new() };
    rows.extend(names.sets().iter().flat_map(|set| foreign_rows(counts, *set)));
    rows
}

/// Our own, in the order of the engine, then what is around it, then what is unknown here.
fn own_rows(counts: &Counts) -> Vec<Row> {
    let engine = Counter::ALL.iter().map(|counter| (counter.name(), counter.meaning()));
    let known: Vec<(&str, &'static str)> = engine.chain(OUTER_COUNTS).collect();
    let row = |name: &str, meaning| {
        let count = counts.get(name).copied().unwrap_or_default();
        Row { set: None, name: name.to_owned(), count, meaning }
    };
    let unknown = counts.keys().filter(|name| !known.iter().any(|(other, _)| other == name));
    let unknown: Vec<Row> = unknown.map(|name| row(name, "")).collect();
    let known = known.iter().filter(|(name, _)| counts.contains_key(*name) || is_engine(name));
    known.map(|(name, meaning)| row(name, meaning)).chain(unknown).collect()
}

fn is_engine(name: &str) -> bool {
    Counter::ALL.iter().any(|counter| counter.name() == name)
}

fn foreign_rows(counts: &Counts, set: NameSet) -> impl Iterator<Item = Row> + '_ {
    CounterName::all(set).iter().map(move |entry| Row {
        set: Some(set),
        name: entry.name.to_owned(),
        count: entry.value(|part| counts.get(part).copied().unwrap_or_default()),
        meaning: entry.meaning,
    })
}

/// The word for a set in outputs.
pub fn set_name(set: Option<NameSet>) -> &'static str {
    match set {
        None => "uroce",
        Some(NameSet::Rxe) => "rxe",
        Some(NameSet::Mlx5) => "mlx5",
    }
}

/// Names and counts as JSON; with all names one object for each set.
pub fn json(counts: &Counts, names: Names, zeros: bool) -> Value {
    let rows = rows(counts, names);
    let rows = rows.into_iter().filter(|row| zeros || row.count > 0);
    let mut sets: Map<String, Value> = Map::new();
    let mut flat: Map<String, Value> = Map::new();
    for row in rows {
        if names == Names::All {
            let set = sets.entry(set_name(row.set)).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(set) = set {
                set.insert(row.name, row.count.into());
            }
        } else {
            flat.insert(row.name, row.count.into());
        }
    }
    Value::Object(if names == Names::All { sets } else { flat })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_names_come_first_and_unknown_ones_are_not_lost() {
        let counts: Counts = [("sent_packets", 7), ("link_refused", 2), ("of_the_future", 1)]
            .map(|(name, count)| (name.to_owned(), count))
            .into();
        let rows = rows(&counts, Names::All);
        let find = |set, name: &str| {
            rows.iter().find(|row| row.set == set && row.name == name).map(|row| row.count)
        };
        assert_eq!(find(None, "sent_packets"), Some(7));
        assert_eq!(find(None, "received_packets"), Some(0));
        assert_eq!(find(None, "of_the_future"), Some(1));
        assert_eq!(find(Some(NameSet::Rxe), "sent_pkts"), Some(7));
        assert_eq!(find(Some(NameSet::Rxe), "send_err"), Some(2));
        assert_eq!(find(Some(NameSet::Mlx5), "rdma_tx_packets"), Some(7));
        assert_eq!(json(&counts, Names::Uroce, false)["sent_packets"], 7);
        assert_eq!(json(&counts, Names::All, false)["rxe"]["sent_pkts"], 7);
        assert!(json(&counts, Names::Rxe, false).get("rcvd_pkts").is_none());
        assert_eq!(json(&counts, Names::Rxe, true)["rcvd_pkts"], 0);
    }
}
