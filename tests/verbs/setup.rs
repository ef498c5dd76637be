//! Contexts and connected pairs for the tests.

use std::net::IpAddr;
use std::time::Duration;

use uroce::software::DeviceOptions;
use uroce::verbs::{
    Access, CompletionQueue, ConnectOptions, Context, MemoryRegion, ProtectionDomain, QueuePair,
    QueuePairOptions, connect_pair,
};

/// Nothing takes so long unless it hangs.
pub const LONG: Duration = Duration::from_secs(30);
/// Bytes of an end's memory.
pub const MEMORY: usize = 64 * 1024;

/// A device at an address of `lo` that only one test uses.
pub fn context(last: u8) -> Context {
    open(&options(last))
}

/// Options of such a device.
pub fn options(last: u8) -> DeviceOptions {
    DeviceOptions::at(IpAddr::from([127, 88, 2, last]))
}

/// Opens a device.
pub fn open(options: &DeviceOptions) -> Context {
    Context::open(options).unwrap_or_else(|error| panic!("{error}"))
}

/// A queue pair with completion queue and memory.
pub struct End {
    pub domain: ProtectionDomain,
    pub completions: CompletionQueue,
    pub pair: QueuePair,
    pub memory: MemoryRegion,
}

impl End {
    /// One on this device, in RESET.
    pub fn new(context: &Context) -> Self {
        let domain = context.allocate_domain().unwrap();
        let completions = context.create_completion_queue(256).unwrap();
        let pair = domain.create_queue_pair(&QueuePairOptions::new(&completions)).unwrap();
        let memory = domain.allocate(MEMORY, Access::ALL).unwrap();
        Self { domain, completions, pair, memory }
    }

    /// Waits for one completion, which must be a success, and gives its number.
    pub fn good(&self) -> u64 {
        let completion = self.completions.wait_one(LONG).unwrap();
        assert!(completion.status.is_success(), "{completion:?}");
        completion.id
    }

    /// Posts a receive into the second half of the memory.
    pub fn receive(&self, id: u64) {
        let segment = self.memory.segment(MEMORY / 2, MEMORY / 2);
        self.pair.post_receive(id, &[segment]).unwrap();
    }
}

/// Two connected ends, each on a device of its own at one address.
pub fn ends(last: u8) -> (End, End) {
    let (one, other) = (End::new(&context(last)), End::new(&context(last)));
    connect_pair(&one.pair, &other.pair, &ConnectOptions::default()).unwrap();
    (one, other)
}
