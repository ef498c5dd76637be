//! What a run of a fabric has shown, as series of bins for plots.

use super::plan::{FabricPlan, FlowPlan};
use crate::time::Instant;

/// One flow's part.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowReport {
    /// What it was to do.
    pub plan: FlowPlan,
    /// Bits a second of the receiver's line in each bin, headers and repetitions included.
    pub rates: Vec<f64>,
    /// Bits a second that DCQCN allowed at the end of each bin; the line's where nothing was limited.
    pub limits: Vec<f64>,
    /// Bytes of payload that arrived and counted: of finished messages on reliable connections, of
    /// packets elsewhere.
    pub payload: u64,
    /// Bytes of the receiver's line.
    pub bytes: u64,
}

/// See the module's text.
#[derive(Clone, Debug, PartialEq)]
pub struct FabricReport {
    /// What was run.
    pub plan: FabricPlan,
    /// Flows, in the plan's order.
    pub flows: Vec<FlowReport>,
    /// The port whose queue was the deepest: the number of its host.
    pub port: usize,
    /// The most bytes in that port's queue in each bin.
    pub depths: Vec<u64>,
    /// Packets marked in each bin.
    pub marks: Vec<u64>,
    /// Congestion notifications that reached their flow in each bin.
    pub notifications: Vec<u64>,
    /// Packets dropped in each bin.
    pub drops: Vec<u64>,
    /// Pauses that began in each bin.
    pub pauses: Vec<u64>,
    /// Packets that senders sent again.
    pub repeated: u64,
}

impl FlowReport {
    /// Nanoseconds between the beginning and the end of the flow.
    pub fn duration(&self) -> u64 {
        self.plan.stop - self.plan.start
    }

    /// Bits of payload a second over the flow's time.
    pub fn goodput(&self) -> f64 {
        self.payload as f64 * 8e9 / self.duration().max(1) as f64
    }

    /// Bits a second of the line from `from` to `to`, over the bins that begin and end between them.
    pub fn rate_between(&self, bin: u64, from: Instant, to: Instant) -> f64 {
        let first = from.as_nanos().div_ceil(bin) as usize;
        let last = (to.as_nanos() / bin) as usize;
        let bins = self.rates.get(first..last.min(self.rates.len())).unwrap_or(&[]);
        bins.iter().sum::<f64>() / bins.len().max(1) as f64
    }
}

impl FabricReport {
    pub(super) fn new(plan: &FabricPlan) -> Self {
        let bins = plan.end.as_nanos().div_ceil(plan.bin.max(1)) as usize;
        let flow = |plan: &FlowPlan| FlowReport {
            plan: *plan,
            rates: vec![0.0; bins],
            limits: Vec::with_capacity(bins),
            payload: 0,
            bytes: 0,
        };
        Self {
            flows: plan.flows.iter().map(flow).collect(),
            plan: plan.clone(),
            port: 0,
            depths: Vec::new(),
            marks: vec![0; bins],
            notifications: vec![0; bins],
            drops: vec![0; bins],
            pauses: vec![0; bins],
            repeated: 0,
        }
    }

    /// Bits of payload a second of all flows together, over the whole run.
    pub fn goodput(&self) -> f64 {
        let payload: u64 = self.flows.iter().map(|flow| flow.payload).sum();
        payload as f64 * 8e9 / self.plan.end.as_nanos().max(1) as f64
    }

    /// Jain's index of the flows' rates between two times: 1 if all are the same, 1/n if one has all.
    pub fn fairness(&self, from: Instant, to: Instant) -> f64 {
        let rates = self.flows.iter().map(|flow| flow.rate_between(self.plan.bin, from, to));
        let (sum, squares, count) = rates.fold((0.0, 0.0, 0.0), |(sum, squares, count), rate| {
            (sum + rate, squares + rate * rate, count + 1.0)
        });
        if squares == 0.0 { 1.0 } else { sum * sum / (count * squares) }
    }
}
