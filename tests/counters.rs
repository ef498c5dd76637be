//! `uroce counters` on running processes, and the page that explains its names.

mod common;

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::os::unix::process::CommandExt;
use std::time::Duration;

use common::network::{is_root, veth_in_new_namespace};
use common::program::{Running, assert_success, json, run, status, stderr, stdout, uroce};
use serde_json::Value;
use uroce::software::{CounterName, CounterSource, DeviceOptions, NameSet, OUTER_COUNTS};
use uroce::verbs::{
    Access, ConnectOptions, Context, Counter, QueuePair, QueuePairOptions, SendOperation,
    connect_pair,
};

/// A device of this process with two connected queue pairs, of which the first has sent `writes`.
fn busy_device(last: u8, writes: u64) -> (Context, [QueuePair; 2]) {
    let options = DeviceOptions {
        name: Some(format!("dev{last}")),
        ..DeviceOptions::at(IpAddr::from([127, 88, 9, last]))
    };
    let context = Context::open(&options).unwrap();
    let domain = context.allocate_domain().unwrap();
    let completions = context.create_completion_queue(64).unwrap();
    let pair = || domain.create_queue_pair(&QueuePairOptions::new(&completions)).unwrap();
    let pairs = [pair(), pair()];
    connect_pair(&pairs[0], &pairs[1], &ConnectOptions::default()).unwrap();
    let memory = domain.allocate(64, Access::ALL).unwrap();
    for id in 0..writes {
        let write = SendOperation::Write(memory.remote(0));
        pairs[0].post(id, write, memory.segment(0, 64)).unwrap();
        let completion = completions.wait_one(Duration::from_secs(30)).unwrap();
        assert!(completion.status.is_success());
    }
    (context, pairs)
}

fn own() -> String {
    std::process::id().to_string()
}

/// The objects of `--json`, one a device.
fn answers(arguments: &[&str]) -> Vec<Value> {
    let output = run(&[&["counters", "--json"], arguments].concat());
    assert_success(&output);
    stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_running_process_tells_its_counts_by_device_and_queue_pair() {
    let (_device, pairs) = busy_device(1, 5);
    let found = answers(&["dev1"]);
    let [device] = &found[..] else { panic!("{found:?}") };
    assert_eq!(device["process"], std::process::id());
    assert_eq!((&device["device"], &device["interface"]), (&"dev1".into(), &"lo".into()));
    assert_eq!(device["counters"]["finished_writes"], 5);
    assert_eq!(device["counters"]["drop_bad_icrc"], 0, "zeros are told to machines");
    let listed = device["queue_pairs"].as_array().unwrap();
    assert_eq!(listed.len(), 2);
    let number = pairs[0].number().value();
    let sender = listed.iter().find(|pair| pair["number"] == number).unwrap();
    assert_eq!((&sender["kind"], &sender["state"]), (&"RC".into(), &"RTS".into()));
    assert_eq!(sender["destination"], pairs[1].number().value());
    assert_eq!(sender["peer"], "127.88.9.1");
    assert_eq!(sender["counters"]["finished_writes"], 5);
    assert!(sender["counters"].get("drop_bad_icrc").is_none());

    let one = answers(&["dev1", "--qp", &format!("{number:#x}"), "--names", "all"]);
    let pair = &one[0]["queue_pairs"][0];
    assert_eq!(pair["number"], number);
    assert_eq!(pair["counters"]["uroce"]["finished_writes"], 5);
    // On a busy machine more packets than requests: some are sent again.
    let sent = &pair["counters"]["uroce"]["sent_packets"];
    assert!(sent.as_u64().unwrap() >= 5);
    assert_eq!(&pair["counters"]["mlx5"]["rdma_tx_packets"], sent);
    assert_eq!(&pair["counters"]["rxe"]["sent_pkts"], sent);
}

#[test]
fn people_get_tables_within_100_columns_without_zeros() {
    let (_device, pairs) = busy_device(2, 3);
    let text = stdout(&run(&["counters", "dev2"]));
    let head = format!("process {} (", own());
    assert!(text.contains(&head) && text.contains("device dev2: 2 queue pairs"), "{text}");
    assert!(text.contains("finished_writes") && !text.contains("drop_bad_icrc"), "{text}");
    assert!(text.contains("hidden; -a shows them") && text.contains("at 127.88.9.2"), "{text}");
    let all = stdout(&run(&["counters", "dev2", "-a", "--names", "all"]));
    for words in ["drop_bad_icrc", "rxe.ack_deferred", "mlx5.out_of_buffer", "Always zero:"] {
        assert!(all.contains(words), "{words} is missing: {all}");
    }
    let number = format!("{:#x}", pairs[1].number().value());
    let pair = stdout(&run(&["counters", "dev2", "--qp", &number]));
    assert!(pair.contains(&format!("queue pair {number}: RC, RTS, to ")), "{pair}");
    let list = stdout(&run(&["counters"]));
    assert!(list.lines().any(|line| line.contains(&own()) && line.contains("dev2")), "{list}");
    for text in [text, all, pair, list] {
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }
}

#[test]
fn a_watch_shows_rates_of_what_changes() {
    let (_device, _pairs) = busy_device(3, 1);
    let watch = ["counters", "dev3", "--watch", "--interval", "0.05", "--looks", "2"];
    let output = run(&watch);
    assert_success(&output);
    let text = stdout(&output);
    assert_eq!(text.matches("device dev3").count(), 2, "{text}");
    assert_eq!(text.matches("nothing has changed").count(), 2, "{text}");
    let all = stdout(&run(&[&watch[..], &["-a"]].concat()));
    assert_eq!(all.matches("finished_writes").count(), 2, "{all}");
    assert!(all.contains("0.0/s"), "{all}");
}

#[test]
fn prometheus_gets_heads_types_and_labels() {
    let (_device, pairs) = busy_device(4, 2);
    let output = run(&["counters", "--prometheus", "dev4", "--names", "all"]);
    assert_success(&output);
    let text = stdout(&output);
    let number = pairs[0].number().value();
    let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let device = |name: &str| {
        let head = format!("{name}{{process=\"{}\",", own());
        samples.iter().filter(|line| line.starts_with(&head)).count()
    };
    assert_eq!(device("uroce_finished_writes_total"), 1);
    assert_eq!(device("uroce_rxe_sent_pkts_total"), 1);
    assert_eq!(device("uroce_queue_pairs"), 1);
    let pair = format!("device=\"dev4\",qp=\"{number:#x}\"}} 2");
    let of_pair = |line: &&&str| line.starts_with("uroce_qp_finished_writes_total{");
    assert!(samples.iter().filter(of_pair).any(|line| line.ends_with(&pair)), "{text}");
    assert_is_exposition(&text);
}

/// The grammar of Prometheus's text format: each metric has one HELP, one TYPE and then its samples
/// together, each with a name, labels and a number.
fn assert_is_exposition(text: &str) {
    let mut seen = std::collections::HashSet::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(seen.insert(name.to_owned()), "{name} comes twice");
            assert!(!help.is_empty());
            current = name.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(name == current && ["counter", "gauge"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
        } else {
            let (name, rest) = line.split_once('{').unwrap();
            let (labels, value) = rest.split_once("} ").unwrap();
            assert_eq!(name, current, "{line}");
            assert!(name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'), "{line}");
            assert!(labels.split(',').all(|label| label.contains("=\"") && label.ends_with('"')));
            value.parse::<u64>().unwrap();
        }
    }
}

#[test]
fn several_processes_and_several_devices_of_one_name_are_told_apart() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let mut server = Running::start(uroce(&["pingpong", "-d", "lo", "-p", &port]));
    server.wait_for_line("local  address");
    let options = DeviceOptions {
        name: Some("twin".to_owned()),
        ..DeviceOptions::at(IpAddr::from([127, 88, 9, 5]))
    };
    let twins = [(); 2].map(|()| Context::open(&options).unwrap());
    let server_id = server.id().to_string();
    assert_eq!(answers(&[&server_id])[0]["process"], server.id());
    let all = answers(&[]);
    let of =
        |process: u32| all.iter().filter(|answer| answer["process"] == process).collect::<Vec<_>>();
    assert_eq!(of(server.id()).len(), 1);
    let own = of(std::process::id());
    assert_eq!(own.iter().filter(|answer| answer["device"] == "twin").count(), 2);
    drop(twins);
    assert!(!answers(&[]).iter().any(|answer| answer["device"] == "twin"), "they are closed");
}

#[test]
fn mistakes_are_told_with_what_to_do() {
    let (_device, _pairs) = busy_device(6, 0);
    let unknown = run(&["counters", "no-such-program"]);
    assert_eq!(status(&unknown), 1);
    let text = stderr(&unknown);
    assert!(text.contains("no-such-program") && text.contains(&own()), "{text}");
    let pair = run(&["counters", "dev6", "--qp", "0x3"]);
    assert_eq!(status(&pair), 1);
    assert!(stderr(&pair).contains("no queue pair 0x3"), "{}", stderr(&pair));
    for wrong in [
        &["--qp", "x"][..],
        &["--names", "x"],
        &["--json", "--prometheus"],
        &["--watch", "--json"],
        &["--interval", "0"],
    ] {
        let output = run(&[&["counters"][..], wrong].concat());
        assert_eq!(status(&output), 2, "{wrong:?}");
        assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
    }
}

#[test]
fn where_no_process_runs_it_says_how_to_start_one() {
    if !is_root() {
        return common::skip_unless("root", "making a network namespace needs it");
    }
    if let Err(reason) = veth_in_new_namespace("inside9", "outside9", "10.77.9.1/24", 1500) {
        return common::skip_unless("network-namespaces", &reason);
    }
    let output = run(&["counters"]);
    assert_eq!(status(&output), 1);
    let text = stderr(&output);
    assert!(text.contains("no process") && text.contains("uroce pingpong -d lo"), "{text}");
}

#[test]
fn another_user_gets_nothing_but_a_sentence() {
    if !is_root() {
        return common::skip_unless("root", "becoming another user needs it");
    }
    let (_device, _pairs) = busy_device(7, 0);
    // A copy that everybody may run, wherever this one lies.
    let folder = common::program::Folder::new();
    let program = folder.path("uroce");
    std::fs::copy(env!("CARGO_BIN_EXE_uroce"), &program).unwrap();
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, everybody).unwrap();
    let mut command = std::process::Command::new(&program);
    command.args(["counters", "dev7", "--json"]).uid(65_534).gid(65_534);
    let output = Running::start(command).finish();
    assert_eq!(status(&output), 2, "{}", stdout(&output));
    let text = stderr(&output);
    assert!(text.contains("another user (id 0)") && text.contains("sudo"), "{text}");
    assert_eq!(stdout(&output), "");
}

/// Asks as a program of one's own would, and gives everything that comes.
fn ask(device: &str, question: &[u8]) -> String {
    let name = format!("uroce-counters-{}-{device}", std::process::id());
    let address = SocketAddr::from_abstract_name(name).unwrap();
    let mut stream = UnixStream::connect_addr(&address).unwrap();
    stream.write_all(question).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// A socket that calls itself a device of this process and is none.
fn impostor(device: &str) -> std::os::unix::net::UnixListener {
    let name = format!("uroce-counters-{}-{device}", std::process::id());
    let address = SocketAddr::from_abstract_name(name).unwrap();
    std::os::unix::net::UnixListener::bind_addr(&address).unwrap()
}

#[test]
fn an_answer_without_end_fills_no_memory() {
    const MOST: usize = 64 << 20;
    let listener = impostor("endless");
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_to_end(&mut Vec::new()).unwrap();
        let mut sent = 0;
        while sent < MOST && stream.write_all(&[b' '; 1 << 16]).is_ok() {
            sent += 1 << 16;
        }
        sent
    });
    let output = run(&["counters", "endless"]);
    assert!(answering.join().unwrap() < MOST / 8, "it was read to the end");
    assert_eq!((status(&output), stdout(&output)), (2, String::new()));
    assert!(stderr(&output).contains("its answer does not end"), "{}", stderr(&output));
}

#[test]
fn who_listens_and_takes_nobody_stops_nobody() {
    use socket2::{Domain, SockAddr, Socket, Type};
    let name = format!("\0uroce-counters-{}-deaf", std::process::id());
    let address = SockAddr::unix(name).unwrap();
    let socket = || Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
    let listener = socket();
    listener.bind(&address).unwrap();
    listener.listen(0).unwrap();
    let waiting = socket();
    waiting.connect(&address).unwrap();
    let full = socket();
    full.set_nonblocking(true).unwrap();
    assert_eq!(full.connect(&address).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    let output = run(&["counters", "deaf", "--json"]);
    assert_eq!((status(&output), stdout(&output)), (2, String::new()));
    assert!(stderr(&output).contains("is it stopped?"), "{}", stderr(&output));
}

#[test]
fn names_that_others_choose_do_nothing_to_a_terminal() {
    let listener = impostor("strange");
    let answering = std::thread::spawn(move || {
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_to_end(&mut Vec::new()).unwrap();
            let device = serde_json::json!({"device": {
                "process": 1, "program": "\u{1b}[2Jevil\u{7}", "device": "\u{1b}]0;x",
                "interface": "\u{9b}31m", "time": 0, "queue_pairs": 1,
                "counters": {"\u{1b}[1m": 1},
            }});
            let pair = serde_json::json!({"queue_pair": {
                "number": 7, "kind": "\u{1b}c", "state": "\u{8}", "destination": null, "peer": null,
                "counters": {"\u{1b}[0m": 5},
            }});
            let text = format!("{device}\n{pair}\n\"end\"\n");
            stream.write_all(text.as_bytes()).unwrap();
        }
    });
    let output = run(&["counters", "strange"]);
    let one = run(&["counters", "strange", "--qp", "7"]);
    answering.join().unwrap();
    for output in [output, one] {
        assert_success(&output);
        let text = stdout(&output);
        assert!(text.contains("evil"), "{text}");
        let controls: Vec<char> = text.chars().filter(|c| c.is_control() && *c != '\n').collect();
        assert_eq!(controls, [], "{text:?}");
    }
}

#[test]
fn strange_questions_are_refused_and_who_says_nothing_keeps_nobody_for_long() {
    let (device, _pairs) = busy_device(8, 1);
    for question in [&b"what\n"[..], b"qp x\n", &[0xff; 64], b""] {
        let text = ask("dev8", question);
        assert!(text.starts_with("{\"refused\":") && text.ends_with("\"end\"\n"), "{text}");
    }
    let name = format!("uroce-counters-{}-dev8", std::process::id());
    let address = SocketAddr::from_abstract_name(name).unwrap();
    let silent = UnixStream::connect_addr(&address).unwrap();
    // The next one is served although the silent one is still there.
    assert!(ask("dev8", b"device\n").contains("\"finished_writes\":1"));
    drop(silent);
    // And the device itself has not noticed.
    assert_eq!(device.counters().unwrap().engine.get(Counter::FinishedWrite), 1);
}

/// The tables of docs/counters.md as they have to be.
fn documented() -> String {
    let mut text =
        String::from("## uroce's own names\n\n| name | what it counts |\n| --- | --- |\n");
    let own = Counter::ALL.iter().map(|counter| (counter.name(), counter.meaning()));
    for (name, meaning) in own.chain(OUTER_COUNTS) {
        text.push_str(&format!("| `{name}` | {meaning} |\n"));
    }
    for (set, title) in [(NameSet::Rxe, "Names of rxe"), (NameSet::Mlx5, "Names of mlx5")] {
        text.push_str(&format!(
            "\n## {title}\n\n| name | is | what it counts |\n| --- | --- | --- |\n"
        ));
        for entry in CounterName::all(set) {
            let source = match entry.source {
                CounterSource::Sum(parts) => {
                    parts.iter().map(|part| format!("`{part}`")).collect::<Vec<_>>().join(" + ")
                }
                CounterSource::Never(why) => format!("always zero: {why}"),
            };
            text.push_str(&format!("| `{}` | {source} | {} |\n", entry.name, entry.meaning));
        }
    }
    text
}

#[test]
fn the_page_about_counters_says_what_the_program_does() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/counters.md");
    let page = std::fs::read_to_string(path).unwrap();
    let begin = page.find("## uroce's own names").unwrap_or(page.len());
    let expected = documented();
    if page[begin..] == expected {
        return;
    }
    let wanted = std::env::temp_dir().join("counters.md");
    std::fs::write(&wanted, format!("{}{expected}", &page[..begin])).unwrap();
    panic!("docs/counters.md is behind the program: {} is how it has to be", wanted.display());
}

#[test]
fn the_json_of_one_device_is_one_object() {
    let (_device, _pairs) = busy_device(10, 0);
    let output = run(&["counters", "dev10", "--json"]);
    assert_eq!(json(&output)["device"], "dev10");
}
