//! The pingpong over shared receive queues: many queue pairs with one queue (srq), or an extended
//! reliable connection in each direction (xsrq).

use std::process::ExitCode;

use uroce::queue::{Payload, SendRequest};
use uroce::software::clock;
use uroce::verbs::{
    Access, Completion, CompletionChannel, CompletionQueue, Context, Endpoint, MemoryRegion,
    ProtectionDomain, Psn, Qpn, QueueCapacities, QueuePair, QueuePairKind, QueuePairOptions,
    SendFlags, SendOperation, SharedReceiveQueue, Srqn, XrcDomainOptions, XrcQueueOptions,
    XrcTarget,
};

use super::common::{self, next_completions};
use super::handshake::Server;
use super::run::{
    RECEIVE, SEND, STAY, check_message, connect_options, failed, print_address, report,
};
use super::shared_handshake::{self, XrcAddress};
use super::{PingpongArgs, Transport};
use crate::cli::device::check_capture;
use crate::cli::output::{Failure, print, random_u64};

/// The queue pairs of an end.
enum Pairs {
    /// All take their receives from one queue.
    Srq(Vec<QueuePair>),
    /// One sends, to a queue of the peer, and one receives.
    Xsrq { initiator: Box<QueuePair>, target: XrcTarget, to: Srqn },
}

impl Pairs {
    /// The queue pair that can say why a completion failed.
    fn of(&self, completion: &Completion) -> &QueuePair {
        match self {
            Self::Srq(pairs) => {
                let own = |pair: &&QueuePair| pair.number() == completion.queue_pair;
                pairs.iter().find(own).unwrap_or(&pairs[0])
            }
            Self::Xsrq { initiator, .. } => initiator,
        }
    }
}

struct End<'a> {
    args: &'a PingpongArgs,
    pairs: Pairs,
    queue: SharedReceiveQueue,
    completions: CompletionQueue,
    channel: CompletionChannel,
    buffer: MemoryRegion,
    expected: Option<Vec<u8>>,
    posted: u32,
    received: u64,
    sent: u64,
    /// Messages that were posted.
    started: u64,
    /// Of each queue pair, the halves of its exchange that have not completed.
    pending: Vec<u64>,
}

/// Runs the subcommand.
pub(super) fn run(args: &PingpongArgs) -> Result<ExitCode, Failure> {
    if args.transport == Transport::Srq && args.num_qp > args.rx_depth {
        return Err(Failure::usage(format!(
            "--rx-depth {} is too small for {} queue pairs: each needs a receive",
            args.rx_depth, args.num_qp
        )));
    }
    let context = args.device.open()?;
    let mut end = End::new(args, &context)?;
    end.post_receives()?;
    let server = args.host.is_none().then(|| Server::listen(args.port)).transpose()?;
    let mut stream = end.meet(server.as_ref())?;
    let start = clock::now();
    end.exchange()?;
    report(args, (clock::now() - start) as f64 / 1e9)?;
    if let Some(stream) = &mut stream {
        shared_handshake::finish(stream, args.host.is_some())?;
    }
    // Nothing is armed, so no event comes.
    end.channel.wait_event(STAY);
    check_capture(&context)?;
    Ok(ExitCode::SUCCESS)
}

impl<'a> End<'a> {
    fn new(args: &'a PingpongArgs, context: &Context) -> Result<Self, Failure> {
        let domain = context.allocate_domain()?;
        let completions = context.create_completion_queue(args.rx_depth + args.num_qp)?;
        let channel = CompletionChannel::new()?;
        channel.attach(&completions, 0)?;
        let (queue, pairs) = match args.transport {
            Transport::Xsrq => xrc_pairs(args, context, &domain, &completions)?,
            _ => {
                let queue = domain.create_shared_receive_queue(args.rx_depth, 1)?;
                let pairs = rc_pairs(args, &domain, &completions, &queue)?;
                (queue, pairs)
            }
        };
        let buffer = domain.allocate(args.size as usize, Access::LOCAL_WRITE)?;
        let message = common::message(args);
        buffer.write(0, &common::first_content(&message, begins(args)))?;
        let count = if let Pairs::Srq(pairs) = &pairs { pairs.len() } else { 1 };
        Ok(Self {
            args,
            pairs,
            queue,
            completions,
            channel,
            buffer,
            expected: args.chk.then_some(message),
            posted: 0,
            received: 0,
            sent: 0,
            started: 0,
            pending: vec![RECEIVE; count],
        })
    }

    /// Exchanges addresses and connects. The stream is for the end, where there is one.
    fn meet(&mut self, server: Option<&Server>) -> Result<Option<std::net::TcpStream>, Failure> {
        let host = self.args.host.as_deref().map(|host| (host, self.args.port));
        match &mut self.pairs {
            Pairs::Srq(pairs) => {
                meet_pairs(self.args, pairs, host, server)?;
                Ok(None)
            }
            Pairs::Xsrq { initiator, target, to } => {
                let queue = self.queue.number().expect("it is an XRC queue");
                let own = own_address(self.args, initiator, target, queue)?;
                show(self.args, "local ", &own)?;
                let (peer, stream) = shared_handshake::exchange_xrc(host, server, &own)?;
                show(self.args, "remote", &peer)?;
                *to = peer.queue;
                let options = connect_options(self.args);
                let way = |number| Endpoint { gid: peer.gid, number, psn: peer.psn };
                target.connect(&way(peer.initiator), &options)?;
                initiator.connect(&way(peer.target), own.psn, &options)?;
                Ok(Some(stream))
            }
        }
    }

    fn post_receives(&mut self) -> Result<(), Failure> {
        let segment = [self.buffer.segment(0, self.buffer.len())];
        while self.posted < self.args.rx_depth {
            self.queue.post_receive(RECEIVE, &segment)?;
            self.posted += 1;
        }
        Ok(())
    }

    fn post_send(&mut self, pair: usize) -> Result<(), Failure> {
        let segments = [self.buffer.segment(0, self.buffer.len())];
        let request = SendRequest {
            id: SEND,
            operation: SendOperation::Send,
            flags: SendFlags::SIGNALED,
            payload: Payload::Segments(&segments),
        };
        match &self.pairs {
            Pairs::Srq(pairs) => pairs[pair].post_send(&request)?,
            Pairs::Xsrq { initiator, to, .. } => initiator.post_send_to(*to, &request)?,
        }
        self.started += 1;
        self.pending[pair] = SEND | RECEIVE;
        Ok(())
    }

    fn exchange(&mut self) -> Result<(), Failure> {
        if begins(self.args) {
            for pair in 0..self.pending.len() {
                self.post_send(pair)?;
            }
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
            let pair = self.pairs.of(completion);
            return Err(failed(completion, self.received, &pair.explain(completion)));
        }
        if completion.kind.is_receive() {
            let length = completion.length as usize;
            if let Some(expected) = &self.expected {
                check_message(expected, &self.buffer, 0, length, self.received + 1)?;
            }
            self.received += 1;
            self.posted -= 1;
            if self.posted <= self.args.num_qp.min(self.args.rx_depth - 1) {
                self.post_receives()?;
            }
        } else {
            self.sent += 1;
        }
        let pair = self.place_of(completion.queue_pair)?;
        self.pending[pair] &= !completion.id;
        if self.pending[pair] == 0 && self.may_start() {
            self.post_send(pair)?;
        }
        Ok(())
    }

    /// `ibv_srq_pingpong` starts messages until enough have completed, the other program exactly as
    /// many as are asked for.
    fn may_start(&self) -> bool {
        match self.pairs {
            Pairs::Srq(_) => self.sent < self.args.iters,
            Pairs::Xsrq { .. } => self.started < self.args.iters,
        }
    }

    fn place_of(&self, number: Qpn) -> Result<usize, Failure> {
        let Pairs::Srq(pairs) = &self.pairs else { return Ok(0) };
        let place = pairs.iter().position(|pair| pair.number() == number);
        place.ok_or_else(|| Failure::bad(format!("a completion of {number}, which is not ours")))
    }

    fn silence(&self) -> Failure {
        Failure::bad(format!(
            "nothing has completed for {} s, after {} messages received and {} sent: the peer may \
             have stopped, or the two ends differ in --iters, --num-qp, --size, --mtu or --transport",
            self.args.patience, self.received, self.sent
        ))
    }
}

/// The client's messages come first, but in `ibv_xsrq_pingpong` the server's.
const fn begins(args: &PingpongArgs) -> bool {
    let is_client = args.host.is_some();
    if matches!(args.transport, Transport::Xsrq) { !is_client } else { is_client }
}

fn capacities(sends: u32) -> QueueCapacities {
    QueueCapacities { send_requests: sends, send_segments: 1, ..QueueCapacities::NONE }
}

fn rc_pairs(
    args: &PingpongArgs,
    domain: &ProtectionDomain,
    completions: &CompletionQueue,
    queue: &SharedReceiveQueue,
) -> Result<Pairs, Failure> {
    let options = QueuePairOptions {
        capacities: capacities(1),
        shared_receives: Some(queue),
        ..QueuePairOptions::new(completions)
    };
    let mut pairs = Vec::new();
    for _ in 0..args.num_qp {
        let pair = domain.create_queue_pair(&options)?;
        pair.initialize(Access::LOCAL_WRITE)?;
        pairs.push(pair);
    }
    Ok(Pairs::Srq(pairs))
}

fn xrc_pairs(
    args: &PingpongArgs,
    context: &Context,
    domain: &ProtectionDomain,
    completions: &CompletionQueue,
) -> Result<(SharedReceiveQueue, Pairs), Failure> {
    let xrc_domain = context.open_xrc_domain(&XrcDomainOptions::default())?;
    let queue = domain.create_xrc_shared_receive_queue(&XrcQueueOptions {
        domain: &xrc_domain,
        completions,
        requests: args.rx_depth,
        segments: 1,
    })?;
    let initiator = domain.create_queue_pair(&QueuePairOptions {
        kind: QueuePairKind::XrcInitiator,
        capacities: capacities(1),
        ..QueuePairOptions::new(completions)
    })?;
    let target = xrc_domain.create_target()?;
    let to = Srqn::default();
    Ok((queue, Pairs::Xsrq { initiator: Box::new(initiator), target, to }))
}

fn meet_pairs(
    args: &PingpongArgs,
    pairs: &[QueuePair],
    host: Option<(&str, u16)>,
    server: Option<&Server>,
) -> Result<(), Failure> {
    let mut own = Vec::new();
    for pair in pairs {
        own.push(pair.endpoint(args.gid_idx, Psn::new(random_u64() as u32))?);
    }
    if !args.json {
        own.iter().try_for_each(|endpoint| print_address("local ", endpoint))?;
    }
    let options = connect_options(args);
    let connect = |peers: &[Endpoint]| -> Result<(), Failure> {
        for ((pair, peer), own) in pairs.iter().zip(peers).zip(&own) {
            pair.connect(peer, own.psn, &options)?;
        }
        Ok(())
    };
    let peers = shared_handshake::exchange_pairs(host, server, &own, connect)?;
    if !args.json {
        peers.iter().try_for_each(|endpoint| print_address("remote", endpoint))?;
    }
    Ok(())
}

fn own_address(
    args: &PingpongArgs,
    initiator: &QueuePair,
    target: &XrcTarget,
    queue: Srqn,
) -> Result<XrcAddress, Failure> {
    let psn = Psn::new(random_u64() as u32);
    let endpoint = target.endpoint(args.gid_idx, psn)?;
    let (target, initiator) = (endpoint.number, initiator.number());
    Ok(XrcAddress { gid: endpoint.gid, target, initiator, psn, queue })
}

fn show(args: &PingpongArgs, which: &str, address: &XrcAddress) -> Result<(), Failure> {
    if args.json {
        return Ok(());
    }
    let XrcAddress { gid, target, initiator, psn, queue } = address;
    print(&format!(
        "  {which} address:  QPN receiving {target}, sending {initiator}, PSN 0x{:06x}, SRQN {queue}, \
         GID {}",
        psn.value(),
        gid.address()
    ))
}
