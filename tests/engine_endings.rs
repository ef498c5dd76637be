//! Objects end in any order while extended reliable connections use them: nothing panics, nothing
//! is left behind, and what was reached as a limit can be reached again.

mod pair;
mod xrc;

use std::net::IpAddr;
use std::sync::Arc;

use pair::Wire;
use uroce::engine::{ControlError, Engine, EngineOptions, QueuePairOptions};
use uroce::memory::{OwnedMemory, WindowId, WindowKind};
use uroce::queue::{
    Access, Payload, QueueCapacities, QueuePairKind, QueuePairQueues, ReceiveQueue, Remote,
    SendFlags, SendOperation, SendRequest,
};
use uroce::rng::Rng;
use uroce::wire::{Immediate, Lkey};
use xrc::World;

/// What a run makes and ends.
struct Chaos {
    world: World,
    random: Rng,
    queues: Vec<Arc<ReceiveQueue>>,
    regions: Vec<(Lkey, Remote)>,
    completed: u64,
}

impl Chaos {
    fn new(seed: u64) -> Self {
        let world = World::new(2);
        Self { world, random: Rng::new(seed), queues: vec![], regions: vec![], completed: 0 }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random.below(bound as u64) as usize
    }

    fn step(&mut self) {
        match self.below(40) {
            0 if self.queues.len() < 6 => self.queues.push(self.world.create_queue(8)),
            1 if !self.queues.is_empty() => self.end_queue(),
            2..8 if !self.queues.is_empty() => self.post_receive(),
            8..16 if !self.world.initiators.is_empty() => self.post_request(),
            16 if self.world.initiators.len() < 4 => self.world.add_connection(),
            17 if !self.world.initiators.is_empty() => self.end_connection(),
            18 if self.regions.len() < 4 => self.register(),
            19 if !self.regions.is_empty() => {
                let index = self.below(self.regions.len());
                let (key, _) = self.regions.swap_remove(index);
                self.world.sides[1].engine.deregister(key).unwrap();
            }
            20 => {
                let busy = self.world.sides[1].engine.close_xrc_domain(self.world.xrc_domain);
                let is_used = !self.queues.is_empty() || !self.world.targets.is_empty();
                assert_eq!(busy.is_err(), is_used);
                if !is_used {
                    let engine = &mut self.world.sides[1].engine;
                    self.world.xrc_domain = engine.open_xrc_domain(&Default::default()).unwrap();
                }
            }
            _ => {
                self.world.step();
                self.world.now += self.random.below(50_000);
            }
        }
        for side in 0..2 {
            while xrc::poll(&self.world.sides[side].completions).is_some() {
                self.completed += 1;
            }
            self.world.sides[side].engine.check_invariants();
        }
        self.world.effects(0);
        self.world.effects(1);
    }

    fn end_queue(&mut self) {
        let index = self.below(self.queues.len());
        let queue = self.queues.swap_remove(index);
        self.world.sides[1].engine.destroy_shared_receive_queue(&queue).unwrap();
    }

    fn post_receive(&mut self) {
        let index = self.below(self.queues.len());
        if self.queues[index].posted() < 4 {
            self.world.post_receive(&self.queues[index], 1, 0x4_0000, 8192);
        }
    }

    fn register(&mut self) {
        let side = &mut self.world.sides[1];
        let memory = Arc::clone(&side.memory);
        let address = memory.address();
        let access = Access::ALL | Access::INVALIDATE;
        let keys = side.engine.register(side.domain, memory, access).unwrap();
        self.regions.push((keys.local, Remote { address, key: keys.remote }));
    }

    fn post_request(&mut self) {
        let queue = self.below(self.queues.len().max(1));
        let Some(number) = self.queues.get(queue).and_then(|queue| queue.number()) else { return };
        let remote = match self.regions.is_empty() {
            true => self.world.remote(0),
            false => {
                let index = self.below(self.regions.len());
                self.regions[index].1
            }
        };
        let immediate = Immediate([1; 4]);
        let (operation, most) = match self.below(7) {
            0 => (SendOperation::Send, 8192),
            1 => (SendOperation::SendWithImmediate(immediate), 8192),
            2 => (SendOperation::Write(remote), 30_000),
            3 => (SendOperation::WriteWithImmediate(remote, immediate), 30_000),
            4 => (SendOperation::Read(remote), 30_000),
            5 => (SendOperation::FetchAdd { remote, add: 1 }, 8),
            _ => (SendOperation::SendWithInvalidate(remote.key), 5000),
        };
        let length = if most == 8 { 8 } else { self.below(most) };
        let segments = [self.world.sides[0].sge(0, length)];
        let payload = Payload::Segments(&segments);
        let request = SendRequest { id: 1, operation, flags: SendFlags::SIGNALED, payload };
        let from = self.below(self.world.initiators.len());
        // In error, or full: refused or flushed.
        let _ = self.world.initiators[from].post_send_to(number, &[request]);
    }

    fn end_connection(&mut self) {
        let index = self.below(self.world.initiators.len());
        let (initiator, target): (Arc<QueuePairQueues>, _) =
            (self.world.initiators.swap_remove(index), self.world.targets.swap_remove(index));
        if self.random.chance(1, 2) {
            self.world.sides[0].engine.destroy_queue_pair(initiator.number()).unwrap();
            for _ in 0..self.random.below(4) {
                self.world.step();
            }
            self.world.sides[1].engine.destroy_queue_pair(target.number()).unwrap();
        } else {
            self.world.sides[1].engine.destroy_queue_pair(target.number()).unwrap();
            for _ in 0..self.random.below(4) {
                self.world.step();
            }
            self.world.sides[0].engine.destroy_queue_pair(initiator.number()).unwrap();
        }
    }

    /// Ends the rest: nothing may keep anything.
    fn end(mut self) -> u64 {
        while !self.world.initiators.is_empty() {
            self.end_connection();
        }
        while !self.queues.is_empty() {
            self.end_queue();
        }
        self.world.step();
        let side = &mut self.world.sides[1];
        side.engine.close_xrc_domain(self.world.xrc_domain).unwrap();
        for (key, _) in self.regions {
            side.engine.deregister(key).unwrap();
        }
        side.engine.deregister(side.keys.local).unwrap();
        side.engine.destroy_completion_queue(&side.completions).unwrap();
        side.engine.release_domain(side.domain).unwrap();
        self.completed
    }
}

#[test]
fn queues_connections_and_regions_end_in_any_order_under_traffic() {
    let mut completed = 0;
    for seed in 0..60 {
        let mut chaos = Chaos::new(seed);
        (0..1500).for_each(|_| chaos.step());
        completed += chaos.end();
    }
    assert!(completed > 2000, "{completed} completions");
}

/// Makes objects until the device's limit, which is so many, and ends them.
fn limit_comes_back<T>(
    most: usize,
    mut make: impl FnMut() -> Result<T, ControlError>,
    mut end: impl FnMut(T),
) {
    let mut made = Vec::new();
    loop {
        match make() {
            Ok(object) => made.push(object),
            Err(ControlError::Limit { .. } | ControlError::Register(_)) => break,
            Err(other) => panic!("{other}"),
        }
        assert!(made.len() <= most, "no limit");
    }
    assert_eq!(made.len(), most);
    made.into_iter().for_each(&mut end);
}

#[test]
fn limits_that_were_reached_can_be_reached_again() {
    const MOST: u32 = 300;
    let mut options = EngineOptions::new(1, vec![IpAddr::from([10, 0, 0, 1])]);
    options.limits.queue_pairs = MOST;
    options.limits.shared_receive_queues = MOST;
    options.limits.xrc_domains = MOST;
    options.limits.windows = MOST;
    options.limits.regions = MOST;
    options.limits.multicast_groups = MOST;
    let mut engine = Engine::new(options, &Wire::new().capabilities);
    let domain = engine.allocate_domain().unwrap();
    let completions = engine.create_completion_queue(8).unwrap();
    let engine = std::cell::RefCell::new(engine);
    let options = QueuePairOptions {
        kind: QueuePairKind::Ud,
        domain,
        send_completions: Arc::clone(&completions),
        receive_completions: Arc::clone(&completions),
        capacities: QueueCapacities {
            send_requests: 1,
            receive_requests: 1,
            ..QueueCapacities::NONE
        },
        signal_all: false,
    };
    let memory = OwnedMemory::new(8);
    let mut groups = 0;
    for _ in 0..3 {
        let member = engine.borrow_mut().create_queue_pair(&options).unwrap();
        limit_comes_back(
            MOST as usize,
            || {
                groups += 1;
                let [_, _, high, low] = u32::to_be_bytes(groups);
                let group = IpAddr::from([239, 1, high, low]);
                engine.borrow_mut().attach_multicast(member.number(), group).map(|_| group)
            },
            |group| {
                engine.borrow_mut().detach_multicast(member.number(), group).unwrap();
            },
        );
        engine.borrow_mut().destroy_queue_pair(member.number()).unwrap();
        limit_comes_back(
            MOST as usize,
            || engine.borrow_mut().create_queue_pair(&options),
            |pair| engine.borrow_mut().destroy_queue_pair(pair.number()).unwrap(),
        );
        limit_comes_back(
            MOST as usize,
            || engine.borrow_mut().create_shared_receive_queue(domain, 1, 1),
            |queue| engine.borrow_mut().destroy_shared_receive_queue(&queue).unwrap(),
        );
        limit_comes_back(
            MOST as usize,
            || engine.borrow_mut().open_xrc_domain(&Default::default()),
            |id| engine.borrow_mut().close_xrc_domain(id).unwrap(),
        );
        limit_comes_back(
            MOST as usize,
            || engine.borrow_mut().allocate_window(domain, WindowKind::Type1),
            |key| engine.borrow_mut().deallocate_window(WindowId::of_key(key)).unwrap(),
        );
        limit_comes_back(
            MOST as usize,
            || engine.borrow_mut().register(domain, Arc::clone(&memory), Access::NONE),
            |keys| engine.borrow_mut().deregister(keys.local).unwrap(),
        );
        engine.borrow().check_invariants();
    }
}
