//! Two ends on loopback, connected to each other.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use uroce::fault::FaultPlan;
use uroce::queue::SendRequest;
use uroce::software::{DeviceOptions, OpenError};
use uroce::verbs::{
    Access, Completion, CompletionQueue, ConnectOptions, Context, Endpoint, MemoryRegion, PathMtu,
    Payload, Psn, QueuePair, QueuePairOptions, QueuePairState, SendFlags, SendOperation,
    VerbsError,
};

use super::capture::Captures;
use crate::cli::output::Failure;

/// The end that asks.
pub(super) const ALICE: &str = "Alice";
/// The end that is asked.
pub(super) const BOB: &str = "Bob";
/// Payload of a packet at most.
pub(super) const PATH_MTU: PathMtu = PathMtu::Mtu1024;
/// Bytes of each end's memory: a half to send from, a half to receive in.
pub(super) const MEMORY: usize = 128 * 1024;
/// Where the second half begins.
pub(super) const SECOND_HALF: usize = MEMORY / 2;
/// Far longer than anything takes, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
/// Addresses of the two ends; the second pair for when somebody else has the first.
const PLACES: [[Ipv4Addr; 2]; 2] = [
    [Ipv4Addr::new(127, 0, 0, 1), Ipv4Addr::new(127, 0, 0, 2)],
    [Ipv4Addr::new(127, 47, 91, 1), Ipv4Addr::new(127, 47, 91, 2)],
];

/// One end.
pub(super) struct End {
    pub(super) name: &'static str,
    pub(super) context: Context,
    pub(super) pair: QueuePair,
    pub(super) memory: MemoryRegion,
    completions: CompletionQueue,
    /// What it tells the other.
    pub(super) endpoint: Endpoint,
    pub(super) capture: PathBuf,
}

/// Both ends.
pub(super) struct Stage {
    pub(super) alice: End,
    pub(super) bob: End,
    pub(super) fault: Option<FaultPlan>,
}

impl Stage {
    /// Opens two devices, each with a queue pair in RESET and memory.
    pub(super) fn open(
        captures: &Captures,
        scene: u32,
        fault: Option<&FaultPlan>,
    ) -> Result<Self, Failure> {
        let open = |name, address: Ipv4Addr, psn| {
            End::open(name, address.into(), psn, captures.file(name, scene), fault)
        };
        let [[first, second], [third, fourth]] = PLACES;
        let alice = match open(ALICE, first, 1000) {
            Err(VerbsError::Open(OpenError::Udp(_))) => open(ALICE, third, 1000)?,
            other => other?,
        };
        let bob = match open(BOB, second, 5000) {
            Err(VerbsError::Open(OpenError::Udp(_))) => open(BOB, fourth, 5000)?,
            other => other?,
        };
        Ok(Self { alice, bob, fault: fault.cloned() })
    }

    /// Connects the two ends.
    pub(super) fn connect(&self) -> Result<(), Failure> {
        self.alice.connect(&self.bob)?;
        self.bob.connect(&self.alice)
    }
}

impl End {
    fn open(
        name: &'static str,
        address: IpAddr,
        psn: u32,
        capture: PathBuf,
        fault: Option<&FaultPlan>,
    ) -> Result<Self, VerbsError> {
        let context = Context::open(&DeviceOptions {
            interface: Some("lo".to_owned()),
            name: Some(name.to_lowercase()),
            capture: Some(capture.clone()),
            fault: fault.cloned(),
            ..DeviceOptions::at(address)
        })?;
        let domain = context.allocate_domain()?;
        let completions = context.create_completion_queue(256)?;
        let pair = domain.create_queue_pair(&QueuePairOptions::new(&completions))?;
        let memory = domain.allocate(MEMORY, Access::ALL)?;
        let endpoint = pair.endpoint(0, Psn::new(psn))?;
        Ok(Self { name, context, pair, memory, completions, endpoint, capture })
    }

    fn connect(&self, peer: &Self) -> Result<(), Failure> {
        let options = ConnectOptions {
            path_mtu: Some(PATH_MTU),
            // 0.27 s: an end may have to wait for a processor.
            timeout: 16,
            ..ConnectOptions::default()
        };
        self.pair.connect(&peer.endpoint, self.endpoint.psn, &options)?;
        match self.pair.query()?.attributes.state {
            Some(QueuePairState::Rts) => Ok(()),
            other => Err(self.wrong(&format!("the queue pair is in {other:?} instead of RTS"))),
        }
    }

    /// This end's address.
    pub(super) fn address(&self) -> IpAddr {
        self.endpoint.gid.address()
    }

    /// Posts one request whose local data is `length` bytes from `offset` on, and waits for its end.
    pub(super) fn perform(
        &self,
        operation: SendOperation,
        offset: usize,
        length: usize,
    ) -> Result<Completion, Failure> {
        self.pair.post_send(&SendRequest {
            id: 1,
            operation,
            flags: SendFlags::SIGNALED,
            payload: Payload::Segments(&[self.memory.segment(offset, length)]),
        })?;
        self.wait()
    }

    /// Waits for one completion, which must be a success.
    pub(super) fn wait(&self) -> Result<Completion, Failure> {
        let completion =
            self.completions.wait_one(PATIENCE).map_err(|error| self.wrong(&error.to_string()))?;
        match completion.status {
            status if status.is_success() => Ok(completion),
            status => {
                let why = self.pair.explain(&completion);
                Err(self.wrong(&format!("a work request failed: {status}\n{why}")))
            }
        }
    }

    /// Waits for the turn under way, which ends by handing recorded frames to the file.
    pub(super) fn finish_turn(&self) -> Result<(), Failure> {
        self.context.counters()?;
        Ok(())
    }

    /// Lets time pass.
    pub(super) fn idle(&self, time: Duration) -> Result<(), Failure> {
        // Without room for a completion it takes none, and waits to the end.
        self.completions.wait(&mut [], Some(time))?;
        Ok(())
    }

    /// Checks that memory holds what it should.
    pub(super) fn expect(&self, offset: usize, expected: &[u8]) -> Result<(), Failure> {
        let found = self.memory.to_vec(offset, expected.len())?;
        match found.iter().zip(expected).position(|(is, should)| is != should) {
            None => Ok(()),
            Some(at) => Err(self.wrong(&format!(
                "byte {at} of {} is 0x{:02x} instead of 0x{:02x}",
                expected.len(),
                found[at],
                expected[at]
            ))),
        }
    }

    /// Checks that a 64-bit word is what it should be.
    pub(super) fn expect_word(&self, offset: usize, expected: u64) -> Result<(), Failure> {
        match self.memory.load_u64(offset)? {
            found if found == expected => Ok(()),
            found => Err(self.wrong(&format!("a word is {found} instead of {expected}"))),
        }
    }

    fn wrong(&self, what: &str) -> Failure {
        Failure::bad(format!("{}: {what}", self.name))
    }
}
