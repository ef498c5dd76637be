//! `uroce pingpong`: two processes on one host.

mod common;

use std::io::{Read, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Output;

use common::program::{Folder, Running, assert_success, json, status, stderr, stdout, uroce};
use socket2::{Domain, Socket, Type};

/// A TCP port that was free a moment ago.
fn free_port() -> String {
    let listener = TcpListener::bind(("::", 0)).or_else(|_| TcpListener::bind(("0.0.0.0", 0)));
    listener.unwrap().local_addr().unwrap().port().to_string()
}

/// Server and client with these options, the server first.
fn play(server: &[&str], client: &[&str]) -> [Output; 2] {
    let port = free_port();
    let common = ["pingpong", "-d", "lo", "-p", &port];
    let mut server = Running::start(uroce(&[&common[..], server].concat()));
    server.wait_for_line("local  address");
    let client = Running::start(uroce(&[&common[..], client].concat()));
    let client = client.finish();
    [server.finish(), client]
}

fn succeed(server: &[&str], client: &[&str]) -> [Output; 2] {
    let outputs = play(server, client);
    outputs.iter().for_each(assert_success);
    outputs
}

#[test]
fn every_size_arrives_whole_by_polling_and_by_events() {
    for size in ["1", "33", "1024", "65536"] {
        for events in [&[][..], &["-e"]] {
            let options = [&["-s", size, "-n", "50", "-c"], events].concat();
            let [server, client] = succeed(&options, &[&options[..], &["localhost"]].concat());
            for output in [server, client] {
                let text = stdout(&output);
                assert!(text.contains("every byte of every message was checked"), "{text}");
                let bytes = size.parse::<u64>().unwrap() * 50 * 2;
                assert!(text.contains(&format!("{bytes} bytes in ")), "{text}");
                assert!(text.contains("50 iters in "), "{text}");
            }
        }
    }
}

#[test]
fn ipv6_works_and_so_does_every_path_mtu() {
    for mtu in ["256", "512", "2048", "4096"] {
        let options = ["-g", "1", "-m", mtu, "-s", "10000", "-n", "20", "-c"];
        let [server, _] = succeed(&options, &[&options[..], &["::1"]].concat());
        assert!(stdout(&server).contains("GID ::1"), "{}", stdout(&server));
    }
}

#[test]
fn one_receive_at_a_time_is_enough() {
    let options = ["-r", "1", "-n", "100", "-c"];
    succeed(&options, &[&options[..], &["localhost"]].concat());
}

#[test]
fn lost_packets_delay_but_lose_nothing() {
    let folder = Folder::new();
    let file = folder.path("x.pcapng");
    let options = ["-s", "5000", "-n", "200", "-c"];
    let fault = ["--fault", "loss=3%,duplicate=2%,reorder=2%,corrupt=1%,seed=5", "--pcap", &file];
    succeed(&options, &[&options[..], &fault, &["localhost"]].concat());
    assert!(std::fs::metadata(&file).unwrap().len() > 1_000_000, "it was recorded");
}

#[test]
fn the_environment_says_the_same_as_the_options() {
    let port = free_port();
    let mut server = uroce(&["pingpong", "-p", &port, "-n", "10"]);
    server.env("UROCE_DEVICE", "lo=mlx5_0").env("UROCE_FAULT", "delay=100us");
    let mut server = Running::start(server);
    server.wait_for_line("GID 127.0.0.1");
    let mut client = uroce(&["pingpong", "-p", &port, "-n", "10", "--json", "localhost"]);
    client.env("UROCE_DEVICE", "lo");
    let client = Running::start(client).finish();
    assert_success(&client);
    assert_success(&server.finish());
    let report = json(&client);
    assert_eq!(report["iterations"], 10);
    let time = report["microseconds_per_iteration"].as_f64().unwrap();
    assert!(time >= 200.0, "both directions are delayed by 100 us: {time}");
}

#[test]
fn different_sizes_fail_at_once_and_say_what_to_do() {
    for (server, client) in [("1024", "4096"), ("4096", "1024")] {
        let outputs = play(&["-s", server], &["-s", client, "--patience", "2", "localhost"]);
        let told = outputs.iter().filter(|output| {
            status(output) == 1 && stderr(output).contains("give both ends the same --size")
        });
        assert!(told.count() >= 1, "{}{}", stderr(&outputs[0]), stderr(&outputs[1]));
        for output in &outputs {
            let lines = stderr(output).lines().count();
            assert!(status(output) == 1 && (1..=7).contains(&lines), "{}", stderr(output));
        }
    }
}

#[test]
fn data_that_is_not_what_it_should_be_is_told() {
    // The client does not mark its messages, so the server must miss the marks.
    let [server, client] = play(&["-c"], &["--patience", "1", "localhost"]);
    assert_eq!((status(&server), status(&client)), (1, 1));
    assert!(stderr(&server).contains("byte 0 is 0x7b instead of 0x00"), "{}", stderr(&server));
    assert!(stderr(&client).contains("nothing has completed for 1 s"), "{}", stderr(&client));
}

#[test]
fn a_server_whose_client_ends_says_so() {
    let [server, _] = play(&["-n", "100", "--patience", "1"], &["-n", "10", "localhost"]);
    assert_eq!(status(&server), 1);
    let text = stderr(&server);
    assert!(text.contains("transport retry") || text.contains("nothing has completed"), "{text}");
}

#[test]
fn a_port_in_use_and_a_missing_server_are_told() {
    let listener = TcpListener::bind(("::", 0)).unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let output = Running::start(uroce(&["pingpong", "-d", "lo", "-p", &port])).finish();
    assert_eq!(status(&output), 2);
    let text = stderr(&output);
    assert!(text.contains(&port) && text.contains("another one with --port"), "{text}");
    // Bound, so that no other test gets it, but nobody listens.
    let silent = Socket::new(Domain::IPV6, Type::STREAM, None).unwrap();
    silent.bind(&SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)).into()).unwrap();
    let port = silent.local_addr().unwrap().as_socket().unwrap().port().to_string();
    let output =
        Running::start(uroce(&["pingpong", "-d", "lo", "-p", &port, "localhost"])).finish();
    assert_eq!(status(&output), 2);
    assert!(stderr(&output).contains("start the server there first"), "{}", stderr(&output));
    let output =
        Running::start(uroce(&["pingpong", "-d", "lo", "-p", &port, "name.invalid"])).finish();
    assert_eq!(status(&output), 2);
    let text = stderr(&output);
    assert!(text.contains("name.invalid has no address") && !text.contains("start"), "{text}");
}

#[test]
fn a_peer_that_speaks_something_else_is_told() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let client = Running::start(uroce(&["pingpong", "-d", "lo", "-p", &port, "127.0.0.1"]));
    let (mut stream, _) = listener.accept().unwrap();
    let mut address = [0; 52];
    stream.read_exact(&mut address).unwrap();
    assert!(address.starts_with(b"0000:") && address[51] == 0);
    stream.write_all(&[b'x'; 52]).unwrap();
    let output = client.finish();
    assert_eq!(status(&output), 2);
    assert!(stderr(&output).contains("no address of the form LID:QPN:PSN:GID"));

    let port = free_port();
    let mut server = Running::start(uroce(&["pingpong", "-d", "lo", "-p", &port]));
    server.wait_for_line("local  address");
    drop(TcpStream::connect(("127.0.0.1", port.parse().unwrap())).unwrap());
    let output = server.finish();
    assert_eq!(status(&output), 2);
    assert!(stderr(&output).contains("closed the connection"), "{}", stderr(&output));
}

#[test]
fn wrong_options_are_one_line_that_names_them_and_status_2() {
    for (arguments, named) in [
        (&["-s", "0"][..], "--size"),
        (&["-m", "1000"], "256, 512, 1024, 2048 and 4096"),
        (&["-n", "0"], "--iters"),
        (&["-n", "0"], "it must be 1 or more"),
        (&["-s", "4KiB"], "it must be a whole number"),
        (&["--receive-buffer", "8X"], "K, M and G"),
        (&["-i", "2"], "--ib-port"),
        (&["--sise", "3"], "--size"),
        (&["-d", "absent0"], "absent0"),
        (&["-d", "lo", "-g", "99"], "GID index 99"),
        (&["-d", "lo", "-g", "99"], "`uroce devices`"),
        // Read as UROCE_RECEIVE_BUFFER is; what comes after it is what is refused.
        (&["-d", "lo", "--receive-buffer", "8M", "-g", "99"], "GID index 99"),
        (&["--fault", "los=5%"], "loss=P%"),
        (&["-d", "lo", "--pcap", "/nonexistent/x"], "/nonexistent/x"),
    ] {
        let output = Running::start(uroce(&[&["pingpong"], arguments].concat())).finish();
        let text = stderr(&output);
        assert_eq!((status(&output), text.lines().count()), (2, 1), "{arguments:?}: {text}");
        assert!(text.starts_with("uroce: ") && text.contains(named), "{arguments:?}: {text}");
        assert_eq!(stdout(&output), "");
    }
    let mut command = uroce(&["pingpong"]);
    let output = Running::start({
        command.env("UROCE_FAULT", "loss=200%");
        command
    })
    .finish();
    assert_eq!(status(&output), 2);
    assert!(stderr(&output).contains("UROCE_FAULT=`loss=200%`"), "{}", stderr(&output));
}

#[test]
fn many_queue_pairs_share_one_receive_queue() {
    for (pairs, depth) in [("1", "1"), ("16", "16"), ("3", "500"), ("200", "500")] {
        for events in [&[][..], &["-e"]] {
            let options =
                [&["-T", "srq", "-q", pairs, "-r", depth, "-s", "3000", "-n", "600", "-c"], events]
                    .concat();
            for output in succeed(&options, &[&options[..], &["localhost"]].concat()) {
                let text = stdout(&output);
                assert!(text.contains("every byte of every message was checked"), "{text}");
                let peers = text.matches("  remote address").count();
                assert_eq!(peers.to_string(), pairs, "{text}");
            }
        }
    }
}

#[test]
fn extended_reliable_connections_carry_messages_for_the_queue_that_they_name() {
    for (size, family) in [("1", "0"), ("65536", "0"), ("5000", "1")] {
        for events in [&[][..], &["-e"]] {
            let options =
                [&["-T", "xsrq", "-g", family, "-s", size, "-n", "200", "-c"], events].concat();
            for output in succeed(&options, &[&options[..], &["localhost"]].concat()) {
                let text = stdout(&output);
                assert!(text.contains("every byte of every message was checked"), "{text}");
                assert!(text.contains("SRQN 0x"), "{text}");
            }
        }
    }
    let options = ["-T", "xsrq", "-n", "5"];
    let [server, _] = succeed(&options, &[&options[..], &["--json", "localhost"]].concat());
    assert!(stdout(&server).contains("5 iters in "), "{}", stdout(&server));
}

#[test]
fn losses_delay_shared_receive_queues_and_lose_nothing() {
    for transport in ["srq", "xsrq"] {
        let options = ["-T", transport, "-s", "5000", "-n", "300", "-c"];
        let fault = ["--fault", "loss=3%,duplicate=2%,reorder=2%,corrupt=1%,seed=7", "localhost"];
        succeed(&options, &[&options[..], &fault].concat());
    }
}

#[test]
fn what_does_not_fit_shared_receive_queues_is_told() {
    let few = ["pingpong", "-d", "lo", "-T", "srq", "-q", "9", "-r", "8"];
    let output = Running::start(uroce(&few)).finish();
    assert_eq!(status(&output), 2);
    assert!(stderr(&output).contains("--rx-depth 8 is too small for 9 queue pairs"));
    let options = ["-T", "srq", "--patience", "2", "-q"];
    let [server, client] =
        play(&[&options[..], &["4"]].concat(), &[&options[..], &["2", "localhost"]].concat());
    assert_eq!(status(&server), 2);
    let text = stderr(&server);
    assert!(text.contains("2 queue pairs and this end 4"), "{text}");
    assert_ne!(status(&client), 0);
}

#[test]
fn several_pairs_share_the_port_of_one_host() {
    let pairs: Vec<std::thread::JoinHandle<()>> = (0..4)
        .map(|_| {
            let options = ["-n", "100", "-c"];
            std::thread::spawn(move || {
                succeed(&options, &[&options[..], &["localhost"]].concat());
            })
        })
        .collect();
    pairs.into_iter().for_each(|pair| pair.join().unwrap());
}
