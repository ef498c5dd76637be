//! The pingpong itself: connect, exchange, report.

use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;
use uroce::queue::{Payload, SendRequest};
use uroce::software::clock;
use uroce::verbs::{
    Access, AddressHandle, AddressVector, Completion, CompletionChannel, CompletionQueue,
    CompletionStatus, ConnectOptions, Context, Datagram, Endpoint, Explanation, MemoryRegion,
    ProtectionDomain, Psn, QKey, QueueCapacities, QueuePair, QueuePairOptions, SendFlags,
    SendOperation, Sge,
};

use super::common::{self, next_completions};
use super::handshake::{self, Server};
use super::{PingpongArgs, Transport};
use crate::cli::device::check_capture;
use crate::cli::output::{Failure, print, random_u64};

pub(super) const RECEIVE: u64 = 1;
pub(super) const SEND: u64 = 2;
/// The queue key of the ibv_ud_pingpong program.
const QKEY: QKey = QKey::new(0x1111_1111);
/// How long the end stays when it has all it wants: the acknowledgement of the peer's last message
/// may have been lost, and nobody else can repeat it.
pub(super) const STAY: Duration = Duration::from_millis(200);

/// One end of the pingpong.
struct End<'a> {
    args: &'a PingpongArgs,
    domain: ProtectionDomain,
    pair: QueuePair,
    /// Where datagrams go (UD).
    target: Option<(AddressHandle, Datagram)>,
    completions: CompletionQueue,
    channel: CompletionChannel,
    buffer: MemoryRegion,
    /// What every message must hold, if the data is checked.
    expected: Option<Vec<u8>>,
    posted_receives: u32,
    received: u64,
    sent: u64,
    /// Of the two halves of an exchange, those that have not completed.
    pending: u64,
}

/// What came out.
#[derive(Serialize)]
struct Report {
    bytes: u64,
    iterations: u64,
    seconds: f64,
    megabits_per_second: f64,
    microseconds_per_iteration: f64,
    checked: bool,
}

/// Runs the subcommand.
pub(super) fn run(args: &PingpongArgs) -> Result<ExitCode, Failure> {
    if matches!(args.transport, Transport::Srq | Transport::Xsrq) {
        return super::shared::run(args);
    }
    let context = args.device.open()?;
    let mut end = End::new(args, &context)?;
    let server = args.host.is_none().then(|| Server::listen(args.port)).transpose()?;
    let psn = Psn::new(random_u64() as u32);
    let own = end.pair.endpoint(args.gid_idx, psn)?;
    end.open(psn)?;
    end.post_receives()?;
    if !args.json {
        print_address("local ", &own)?;
    }
    let connect = |peer: &Endpoint| end.connect(peer, psn);
    let peer = match (&args.host, &server) {
        (Some(host), _) => handshake::exchange(host, args.port, &own, connect)?,
        (None, Some(server)) => server.exchange(&own, connect)?,
        (None, None) => unreachable!("a server was made for want of a host"),
    };
    if !args.json {
        print_address("remote", &peer)?;
    }
    let start = clock::now();
    end.exchange()?;
    report(args, (clock::now() - start) as f64 / 1e9)?;
    // Nothing is armed, so no event comes.
    end.channel.wait_event(STAY);
    check_capture(&context)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn connect_options(args: &PingpongArgs) -> ConnectOptions {
    ConnectOptions {
        gid_index: args.gid_idx,
        access: Access::LOCAL_WRITE,
        path_mtu: Some(args.mtu),
        rd_atomic: 1,
        ..ConnectOptions::default()
    }
}

pub(super) fn print_address(which: &str, endpoint: &Endpoint) -> Result<(), Failure> {
    let (number, psn, gid) = (endpoint.number, endpoint.psn.value(), endpoint.gid.address());
    print(&format!("  {which} address:  LID 0x0000, QPN {number}, PSN 0x{psn:06x}, GID {gid}"))
}

pub(super) fn report(args: &PingpongArgs, seconds: f64) -> Result<(), Failure> {
    let iterations = args.iters;
    let bytes = u64::from(args.size) * iterations * 2;
    let megabits = bytes as f64 * 8.0 / 1e6 / seconds;
    let microseconds = seconds * 1e6 / iterations as f64;
    if args.json {
        return print(&serde_json::to_string(&Report {
            bytes,
            iterations,
            seconds,
            megabits_per_second: megabits,
            microseconds_per_iteration: microseconds,
            checked: args.chk,
        })?);
    }
    print(&format!("{bytes} bytes in {seconds:.2} seconds = {megabits:.2} Mbit/sec"))?;
    print(&format!("{iterations} iters in {seconds:.2} seconds = {microseconds:.2} usec/iter"))?;
    if args.chk { print("every byte of every message was checked") } else { Ok(()) }
}

/// Which options of this program decide about sizes.
const fn sizes(status: CompletionStatus) -> &'static str {
    match status {
        CompletionStatus::LocalLengthError
        | CompletionStatus::RemoteInvalidRequest
        | CompletionStatus::WorkRequestFlushed => "\n(give both ends the same --size and --mtu)",
        _ => "",
    }
}

/// A work request that failed, as the last words of the program.
pub(super) fn failed(completion: &Completion, received: u64, why: &Explanation) -> Failure {
    let what = if completion.kind.is_receive() { "receive" } else { "send" };
    let (status, number) = (completion.status, completion.status as u8);
    let sizes = sizes(status);
    Failure::bad(format!(
        "a {what} failed after {received} exchanges: {status} (status {number})
{why}{sizes}"
    ))
}

/// Whether message `number`, of `length` bytes at `start` of a buffer, is as expected.
pub(super) fn check_message(
    expected: &[u8],
    buffer: &MemoryRegion,
    start: usize,
    length: usize,
    number: u64,
) -> Result<(), Failure> {
    if length != expected.len() {
        return Err(Failure::bad(format!(
            "message {number} has {length} bytes instead of {}: give both ends the same --size",
            expected.len()
        )));
    }
    let arrived = buffer.to_vec(start, expected.len())?;
    match arrived.iter().zip(expected).position(|(is, should)| is != should) {
        None => Ok(()),
        Some(at) => Err(Failure::bad(format!(
            "message {number}: byte {at} is 0x{:02x} instead of 0x{:02x} (does the peer check, too? \
             -c changes what is sent: give it to both ends)",
            arrived[at], expected[at]
        ))),
    }
}

impl<'a> End<'a> {
    fn new(args: &'a PingpongArgs, context: &Context) -> Result<Self, Failure> {
        let domain = context.allocate_domain()?;
        let completions = context.create_completion_queue(args.rx_depth + 1)?;
        let channel = CompletionChannel::new()?;
        channel.attach(&completions, 0)?;
        let pair = domain.create_queue_pair(&QueuePairOptions {
            capacities: QueueCapacities {
                send_requests: 1,
                receive_requests: args.rx_depth,
                send_segments: 1,
                receive_segments: 1,
                inline_bytes: 0,
            },
            kind: args.transport.kind(),
            ..QueuePairOptions::new(&completions)
        })?;
        let area = args.transport.area();
        let buffer = domain.allocate(area + args.size as usize, Access::LOCAL_WRITE)?;
        let message = common::message(args);
        buffer.write(area, &common::first_content(&message, args.host.is_some()))?;
        let expected = args.chk.then_some(message);
        Ok(Self {
            args,
            domain,
            pair,
            target: None,
            completions,
            channel,
            buffer,
            expected,
            posted_receives: 0,
            received: 0,
            sent: 0,
            pending: RECEIVE,
        })
    }

    /// Makes the queue pair take receives.
    fn open(&self, psn: Psn) -> Result<(), Failure> {
        match self.args.transport {
            Transport::Ud => Ok(self.pair.start_datagrams(QKEY, psn)?),
            _ => Ok(self.pair.initialize(Access::LOCAL_WRITE)?),
        }
    }

    fn connect(&mut self, peer: &Endpoint, psn: Psn) -> Result<(), Failure> {
        if self.args.transport == Transport::Ud {
            let address = AddressVector::new(self.args.gid_idx, peer.gid.address());
            let handle = self.domain.create_address_handle(&address)?;
            let target = handle.datagram(peer.number, QKEY);
            self.target = Some((handle, target));
            return Ok(());
        }
        Ok(self.pair.connect(peer, psn, &connect_options(self.args))?)
    }

    /// The message in the buffer.
    fn message(&self) -> Sge {
        self.buffer.segment(self.args.transport.area(), self.args.size as usize)
    }

    fn post_receives(&mut self) -> Result<(), Failure> {
        let segment = [self.buffer.segment(0, self.buffer.len())];
        while self.posted_receives < self.args.rx_depth {
            self.pair.post_receive(RECEIVE, &segment)?;
            self.posted_receives += 1;
        }
        Ok(())
    }

    fn post_send(&mut self) -> Result<(), Failure> {
        self.pair.post_send(&SendRequest {
            id: SEND,
            operation: match self.target {
                Some((_, to)) => SendOperation::SendTo { to, immediate: None },
                None => SendOperation::Send,
            },
            flags: SendFlags::SIGNALED,
            payload: Payload::Segments(&[self.message()]),
        })?;
        self.pending = SEND | RECEIVE;
        Ok(())
    }

    /// All exchanges, the client's message first.
    fn exchange(&mut self) -> Result<(), Failure> {
        if self.args.host.is_some() {
            self.post_send()?;
        }
        let mut batch = [Completion::default(); 16];
        while self.received < self.args.iters || self.sent < self.args.iters {
            let count = next_completions(self.args, &self.completions, &self.channel, &mut batch)?;
            if count == 0 {
                return Err(self.silence());
            }
            for completion in &batch[..count] {
                self.handle(completion)?;
            }
        }
        Ok(())
    }

    fn handle(&mut self, completion: &Completion) -> Result<(), Failure> {
        if !completion.status.is_success() {
            let why = self.pair.explain(completion);
            return Err(failed(completion, self.received, &why));
        }
        if completion.kind.is_receive() {
            self.check(completion)?;
            self.received += 1;
            self.posted_receives -= 1;
            if self.posted_receives <= 1 && self.received < self.args.iters {
                self.post_receives()?;
            }
        } else {
            self.sent += 1;
        }
        self.pending &= !completion.id;
        if self.pending == 0 && self.sent < self.args.iters {
            self.post_send()?;
        }
        Ok(())
    }

    fn check(&self, completion: &Completion) -> Result<(), Failure> {
        let Some(expected) = &self.expected else { return Ok(()) };
        let area = self.args.transport.area();
        let length = completion.length as usize - area;
        check_message(expected, &self.buffer, area, length, self.received + 1)
    }

    fn silence(&self) -> Failure {
        Failure::bad(format!(
            "nothing has completed for {} s, after {} messages received and {} sent: {}{}",
            self.args.patience,
            self.received,
            self.sent,
            match self.args.transport {
                Transport::Rc | Transport::Srq | Transport::Xsrq => {
                    "the peer may have stopped, or the two ends differ in --iters, --size, --mtu or \
                     --transport"
                }
                Transport::Uc | Transport::Ud => {
                    "a message may have been lost, which this transport does not repeat, or the \
                     two ends differ in --iters, --size, --mtu or --transport"
                }
            },
            dropped(&self.pair)
        ))
    }
}

/// What came here and was dropped, and why: often that is where the messages are.
fn dropped(pair: &QueuePair) -> String {
    let Ok(counters) = pair.counters() else { return String::new() };
    let drops = counters.iter().filter(|(name, times)| name.starts_with("drop_") && *times > 0);
    let drops: Vec<_> = drops.map(|(name, times)| format!("{name} {times}")).collect();
    if drops.is_empty() {
        return String::new();
    }
    let why = pair.explain_dropped().map_or_else(String::new, |why| format!("\n{why}"));
    format!("\ndropped here: {}{why}", drops.join(", "))
}
