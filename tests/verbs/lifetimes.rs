//! Whatever is dropped first, what is left works, and nothing is left behind.

use uroce::verbs::{
    Access, CompletionChannel, ConnectOptions, QueuePairOptions, SendOperation, connect_pair,
};

use super::setup::{End, LONG, context, ends, open, options};

#[test]
fn handles_keep_alive_what_they_stand_on() {
    let context = context(50);
    let domain = context.allocate_domain().unwrap();
    let completions = context.create_completion_queue(16).unwrap();
    let channel = CompletionChannel::new().unwrap();
    channel.attach(&completions, 3).unwrap();
    let options = QueuePairOptions::new(&completions);
    let pairs = [(); 2].map(|()| domain.create_queue_pair(&options).unwrap());
    let memory = domain.allocate(64, Access::ALL).unwrap();
    connect_pair(&pairs[0], &pairs[1], &ConnectOptions::default()).unwrap();
    drop(context);
    drop(domain);
    completions.request_notification(false);
    let write = SendOperation::Write(memory.remote(32));
    memory.write(0, b"alive").unwrap();
    pairs[0].post(1, write, memory.segment(0, 5)).unwrap();
    assert_eq!(channel.wait_event(LONG), Some(3));
    drop(channel);
    assert_eq!(completions.wait_one(LONG).unwrap().id, 1);
    assert_eq!(memory.to_vec(32, 5).unwrap(), b"alive");
    completions.request_notification(false);
    pairs[0].post(2, write, memory.segment(0, 5)).unwrap();
    assert_eq!(completions.wait_one(LONG).unwrap().id, 2, "a channel that is gone disturbs nobody");
    drop(completions);
    pairs[0].post(3, write, memory.segment(0, 5)).unwrap();
    drop(memory);
    drop(pairs);
}

#[test]
fn any_order_of_dropping_gives_everything_back() {
    let context = open(&options(51));
    for order in orders(4) {
        let End { domain, completions, pair, memory } = End::new(&context);
        pair.initialize(Access::ALL).unwrap();
        pair.post_receive(1, &[memory.segment(0, 8)]).unwrap();
        let (mut domain, mut completions) = (Some(domain), Some(completions));
        let (mut pair, mut memory) = (Some(pair), Some(memory));
        for place in order {
            match place {
                0 => drop(domain.take()),
                1 => drop(completions.take()),
                2 => drop(pair.take()),
                _ => drop(memory.take()),
            }
        }
    }
    // With limits of one each, nothing may have been left behind; see also the test of limits.
    let limits = uroce::verbs::Limits {
        queue_pairs: 1,
        completion_queues: 1,
        domains: 1,
        regions: 1,
        ..Default::default()
    };
    let context = open(&uroce::software::DeviceOptions { limits, ..options(51) });
    for order in orders(4) {
        let End { domain, completions, pair, memory } = End::new(&context);
        let mut things: [Option<Box<dyn std::any::Any>>; 4] = [
            Some(Box::new(domain)),
            Some(Box::new(completions)),
            Some(Box::new(pair)),
            Some(Box::new(memory)),
        ];
        order.into_iter().for_each(|place| drop(things[place].take()));
    }
}

/// All orders of 0 to `count` - 1.
fn orders(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let shorter = orders(count - 1);
    let insert = |order: &Vec<usize>, place: usize| {
        let mut longer = order.clone();
        longer.insert(place, count - 1);
        longer
    };
    shorter.iter().flat_map(|order| (0..count).map(|place| insert(order, place))).collect()
}

#[test]
fn completions_of_a_queue_pair_that_has_ended_can_still_be_polled() {
    let (one, other) = ends(53);
    one.pair
        .post(5, SendOperation::Write(other.memory.remote(0)), one.memory.segment(0, 10))
        .unwrap();
    // Until it is there, but not taken.
    let channel = CompletionChannel::new().unwrap();
    channel.attach(&one.completions, 0).unwrap();
    one.completions.request_notification(false);
    if format!("{:?}", one.completions).contains("waiting: 0") {
        channel.wait_event(LONG).unwrap();
    }
    let End { completions, pair, .. } = one;
    drop(pair);
    assert_eq!(completions.wait_one(LONG).unwrap().id, 5);
}
