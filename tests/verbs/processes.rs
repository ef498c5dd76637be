//! Two processes, and a forked one.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use uroce::verbs::{
    Completion, ConnectOptions, Endpoint, Gid, Psn, Qpn, QueuePairAttributes, QueuePairState,
    Remote, Rkey, SendOperation, VerbsError,
};

use super::setup::{End, LONG, context, ends};

const ROLE: &str = "UROCE_TEST_VERBS_ROLE";
const ADDITIONS: u64 = 300;
const ADDRESS: u8 = 90;

/// What one process tells the other, in a line.
fn written(end: &End, psn: Psn) -> String {
    let Endpoint { gid, number, .. } = end.pair.endpoint(0, psn).unwrap();
    let Remote { address, key } = end.memory.remote(0);
    format!("@ {gid:x} {} {} {address} {}", number.value(), psn.value(), key.value())
}

fn read(line: &str) -> (Endpoint, Remote) {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [_, gid, number, psn, address, key] = fields[..] else { panic!("{line}") };
    let gid: Gid = gid.parse().unwrap();
    let number = Qpn::new(number.parse().unwrap());
    let psn = Psn::new(psn.parse().unwrap());
    let key = Rkey::new(key.parse().unwrap());
    (Endpoint { gid, number, psn }, Remote { address: address.parse().unwrap(), key })
}

/// The other process: adds to a counter of its parent's.
#[test]
fn the_role_of_the_other_process() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let end = End::new(&context(ADDRESS));
    println!("{}", written(&end, Psn::new(5)));
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let (peer, remote) = read(&line);
    end.pair.connect(&peer, Psn::new(5), &ConnectOptions::default()).unwrap();
    for _ in 0..ADDITIONS {
        let add = SendOperation::FetchAdd { remote, add: 1 };
        end.pair.post(1, add, end.memory.segment(0, 8)).unwrap();
        end.good();
    }
    println!("@ done");
}

#[test]
fn processes_add_to_one_counter() {
    let context = context(ADDRESS);
    let owner = End::new(&context);
    let children: Vec<_> = (0..3)
        .map(|_| {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "processes::the_role_of_the_other_process", "--nocapture"])
                .env(ROLE, "1")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let mut lines = lines.map_while(Result::ok).filter_map(|line| {
                // The harness writes its own words before ours.
                line.find('@').map(|start| line[start..].to_owned())
            });
            let (peer, _) = read(&lines.next().unwrap());
            // Each child has a queue pair of its own here, and all of them one counter.
            let end = End::new(&context);
            end.pair.connect(&peer, Psn::new(9), &ConnectOptions::default()).unwrap();
            let mut line = written(&end, Psn::new(9));
            let counter = end.memory.remote(0);
            line.push('\n');
            child.stdin.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
            (child, lines, end, counter)
        })
        .collect();
    drop(owner);
    let mut sum = 0;
    for (mut child, mut lines, end, _) in children {
        assert_eq!(lines.next().as_deref(), Some("@ done"));
        assert!(child.wait().unwrap().success());
        sum += end.memory.load_u64(0).unwrap();
    }
    assert_eq!(sum, 3 * ADDITIONS);
}

#[test]
fn a_forked_child_is_refused_by_name_and_the_parent_goes_on() {
    let (one, other) = ends(91);
    #[allow(unsafe_code)]
    // SAFETY: the child makes no call that could wait for a thread of the parent, and exits without
    // unwinding or running anything else.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let verdict =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| in_child(one, other)));
        let code = i32::from(!verdict.unwrap_or(false));
        #[allow(unsafe_code)]
        // SAFETY: ends the child at once.
        unsafe {
            libc::_exit(code)
        };
    }
    let mut status = 0;
    #[allow(unsafe_code)]
    // SAFETY: the child is ours, and `status` outlives the call.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((waited, status), (child, 0), "the child was refused everything and ended");
    for id in 0..20 {
        other.receive(id);
        one.pair.post(id, SendOperation::Send, one.memory.segment(0, 3000)).unwrap();
        assert_eq!((other.good(), one.good()), (id, id));
    }
}

/// Everything that a child might try with what it has inherited; drops it in the end.
fn in_child(one: End, other: End) -> bool {
    let refused = |error: VerbsError| matches!(error, VerbsError::Forked(_));
    let error = QueuePairAttributes::to_state(QueuePairState::Error);
    let all = [
        one.pair.query().is_err_and(refused),
        one.pair.modify(&error).is_err_and(refused),
        one.domain.allocate(64, uroce::verbs::Access::ALL).is_err_and(refused),
        one.completions.poll(&mut [Completion::default()]).is_ok_and(|count| count == 0),
        one.completions.wait_one(LONG).is_err(),
        one.pair.endpoint(0, Psn::new(0)).is_ok(),
    ];
    drop((one, other));
    // A device of its own is no trouble.
    let own = ends(91);
    own.1.receive(1);
    own.0.pair.post(2, SendOperation::Send, own.0.memory.segment(0, 10)).unwrap();
    let works = own.1.good() == 1 && own.0.good() == 2;
    all.iter().all(|is_so| *is_so) && works
}
