//! Congestion control where flows meet: shares, losses, recovery. Virtual time only.

use uroce::engine::CongestionOptions;
use uroce::sim::{Carrier, FabricPlan, FabricReport, FabricScenario, PfcPlan};
use uroce::time::{Instant, MILLISECOND};

fn plan(name: &str, senders: usize, milliseconds: u64) -> FabricPlan {
    let end = Instant::from_nanos(milliseconds * MILLISECOND);
    FabricScenario::find(name).unwrap().plan_until(senders, 1, end)
}

fn with_pfc(mut plan: FabricPlan) -> FabricPlan {
    plan.switch.pfc = Some(PfcPlan::default());
    plan
}

fn without_control(mut plan: FabricPlan) -> FabricPlan {
    plan.congestion = CongestionOptions::off();
    plan
}

fn at(milliseconds: u64) -> Instant {
    Instant::from_nanos(milliseconds * MILLISECOND)
}

fn sum(series: &[u64]) -> u64 {
    series.iter().sum()
}

/// Prints what matters, for who reads the test's output.
fn show(report: &FabricReport) {
    let line = report.plan.rate as f64;
    let share = |rate: f64| (rate / line * 1000.0).round() / 10.0;
    let flows: Vec<f64> = report.flows.iter().map(|flow| share(flow.goodput())).collect();
    println!(
        "{}: goodput {} % of the line, flows {flows:?} %, {} marked, {} notified, {} dropped, {} \
         pauses, {} repeated, deepest {} bytes",
        report.plan.name,
        share(report.goodput()),
        sum(&report.marks),
        sum(&report.notifications),
        sum(&report.drops),
        sum(&report.pauses),
        report.repeated,
        report.depths.iter().max().unwrap(),
    );
}

fn run(plan: &FabricPlan) -> FabricReport {
    let report = plan.run();
    show(&report);
    report
}

#[test]
fn two_flows_share_a_line_within_a_fifth() {
    for seed in 1..=5 {
        let report = run(&FabricPlan { seed, ..plan("two-flows", 2, 100) });
        let [first, second] = [0, 1].map(|flow| report.flows[flow].goodput());
        let ratio = first.max(second) / first.min(second);
        assert!(ratio <= 1.2, "seed {seed}: {first} and {second}");
        assert!(report.goodput() >= 0.7 * report.plan.rate as f64);
        assert_eq!(sum(&report.drops), 0);
    }
}

#[test]
fn eight_senders_lose_nothing_with_flow_control() {
    for control in [CongestionOptions::default(), CongestionOptions::off()] {
        let plan = FabricPlan { congestion: control, ..with_pfc(plan("incast", 8, 30)) };
        let report = run(&plan);
        assert_eq!(sum(&report.drops), 0);
        assert!(report.goodput() >= 0.7 * report.plan.rate as f64);
        if !control.ecn {
            assert!(sum(&report.pauses) > 0, "nothing else held them back");
        }
    }
}

#[test]
fn eight_senders_keep_seven_tenths_of_the_line_without_flow_control() {
    for seed in 1..=3 {
        let report = run(&FabricPlan { seed, ..plan("incast", 8, 50) });
        assert!(report.goodput() >= 0.7 * report.plan.rate as f64, "seed {seed}");
        assert!(sum(&report.marks) > 0 && sum(&report.notifications) > 0);
    }
}

#[test]
fn the_queue_is_short_because_of_marks() {
    let controlled = run(&with_pfc(plan("incast", 8, 30)));
    let left_alone = run(&without_control(with_pfc(plan("incast", 8, 30))));
    let late = |report: &FabricReport| report.depths[15..].iter().copied().max().unwrap();
    assert!(late(&controlled) * 2 < late(&left_alone));
}

#[test]
fn a_flow_that_is_left_alone_gets_the_line_back() {
    let report = run(&plan("relief", 4, 60));
    let bin = report.plan.bin;
    let line = report.plan.rate as f64;
    let [crowded, alone] = [(at(15), at(30)), (at(45), at(60))]
        .map(|(from, to)| report.flows[0].rate_between(bin, from, to) / line);
    assert!((0.1..=0.45).contains(&crowded), "{crowded}");
    assert!(alone >= 0.9, "{alone}");
    assert!(report.flows[0].limits.last().unwrap() >= &(0.9 * line));
}

#[test]
fn flows_that_start_one_after_another_converge() {
    let report = run(&plan("late-start", 4, 200));
    let early = report.flows[0].rate_between(report.plan.bin, at(0), at(20));
    assert!(early >= 0.9 * report.plan.rate as f64, "alone it has the line: {early}");
    let fairness = report.fairness(at(150), at(200));
    assert!(fairness >= 0.95, "{fairness}");
}

#[test]
fn read_responses_are_slowed_down_like_requests() {
    let report = run(&plan("reads", 8, 30));
    assert!(sum(&report.notifications) > 0);
    assert!(report.goodput() >= 0.7 * report.plan.rate as f64);
}

#[test]
fn datagrams_and_unreliable_writes_are_kept_from_being_dropped() {
    for carrier in [Carrier::Datagram, Carrier::UnreliableWrite] {
        let mut controlled = plan("datagrams", 4, 50);
        for flow in &mut controlled.flows {
            flow.carrier = carrier;
        }
        let left_alone = run(&without_control(controlled.clone()));
        let controlled = run(&controlled);
        assert!(sum(&left_alone.drops) > 100_000, "four lines into one");
        assert!(sum(&controlled.drops) * 20 < sum(&left_alone.drops));
        assert!(controlled.goodput() >= 0.7 * controlled.plan.rate as f64);
    }
}

#[test]
fn a_flow_whose_way_is_free_suffers_from_pauses_and_not_from_marks() {
    let plan = with_pfc(plan("victim", 8, 50));
    let paused = run(&without_control(plan.clone()));
    let marked = run(&plan);
    let victim = |report: &FabricReport| report.flows[8].goodput();
    assert!(victim(&marked) > 2.0 * victim(&paused));
}

#[test]
fn a_plan_gives_the_same_report_each_time() {
    let plan = plan("incast", 3, 5);
    let report = plan.run();
    assert_eq!(report, plan.run());
    assert_ne!(report.marks, FabricPlan { seed: 2, ..plan }.run().marks);
}

#[test]
fn every_scenario_runs_with_any_number_of_senders() {
    for scenario in FabricScenario::all() {
        for senders in [1, 3] {
            let report = plan(scenario.name, senders, 10).run();
            assert!(report.goodput() > 0.5 * report.plan.rate as f64, "{}", scenario.name);
        }
    }
    assert!(FabricScenario::find("nothing").is_none());
}
