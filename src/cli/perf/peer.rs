//! The process that is the other end: does what it is told on standard input.

use std::io::BufRead;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use uroce::verbs::Context;

use super::PerfArgs;
use super::end::End;
use super::other::{Answer, Command, Totals};
use super::plan::Exchange;
use super::raw::{Arrived, Raw};
use super::service::Service;
use super::usage::Watch;
use crate::cli::output::{Failure, print};

/// Rounds between two looks at what it is told.
const ROUNDS: u32 = 64;

/// Everything that this process has.
struct Peer<'a> {
    args: &'a PerfArgs,
    context: Context,
    commands: Receiver<Command>,
    end: Option<End>,
    service: Option<Service<'a>>,
}

/// Does what it is told until nobody tells it anything.
pub(super) fn run(args: &PerfArgs) -> Result<ExitCode, Failure> {
    let (sender, commands) = channel();
    let listen = move || {
        let lines = std::io::stdin().lock().lines().map_while(Result::ok);
        lines
            .map_while(|line| serde_json::from_str(&line).ok())
            .try_for_each(|command| sender.send(command))
    };
    let listener = std::thread::Builder::new().spawn(listen).map_err(Failure::from);
    let answered =
        listener.and_then(|_| args.open_device(&args.peer_options()?)).and_then(|context| {
            let mut peer = Peer { args, context, commands, end: None, service: None };
            while let Ok(command) = peer.commands.recv() {
                let answer = peer.obey(command)?;
                say(&answer)?;
            }
            Ok(())
        });
    if let Err(failure) = answered {
        let (status, message) = failure.parts();
        say(&Answer::Failed { status, message: message.to_owned() })?;
    }
    Ok(ExitCode::SUCCESS)
}

fn say(answer: &Answer) -> Result<(), Failure> {
    print(&serde_json::to_string(answer)?)
}

impl Peer<'_> {
    fn obey(&mut self, command: Command) -> Result<Answer, Failure> {
        match command {
            Command::Prepare(number) => self.prepare(number),
            Command::Connect(card) => {
                let mut end = self.end.take().ok_or_else(out_of_turn)?;
                end.connect(self.args, &card)?;
                self.service = Some(Service::new(self.args, end)?);
                Ok(Answer::Ready)
            }
            Command::Serve => self.serve(),
            Command::Sink => self.sink(),
            Command::Echo(exchange) => self.echo(exchange),
            Command::Check(messages) => {
                self.service.as_mut().ok_or_else(out_of_turn)?.check(&messages)?;
                Ok(Answer::Checked(Totals::of(&self.context)?))
            }
            Command::Stop => Err(out_of_turn()),
        }
    }

    fn prepare(&mut self, number: usize) -> Result<Answer, Failure> {
        // The last row's goes first: it has memory.
        self.service = None;
        let row = *self.args.rows(&self.context).get(number).ok_or_else(out_of_turn)?;
        let end = End::new(self.args, &self.context, row)?;
        let card = end.card()?;
        self.end = Some(end);
        let address = self.context.gid(0)?.address();
        Ok(Answer::Card { card, totals: Totals::of(&self.context)?, address })
    }

    fn serve(&mut self) -> Result<Answer, Failure> {
        let watch = Watch::start();
        let service = self.service.as_mut().ok_or_else(out_of_turn)?;
        let rounds = if self.args.events { 1 } else { ROUNDS };
        while !is_stopped(&self.commands)? {
            for _ in 0..rounds {
                service.step_or_sleep()?;
            }
        }
        Ok(Answer::Stopped { usage: watch.stop(), arrived: Arrived::default() })
    }

    fn bare(&self) -> Result<Raw, Failure> {
        let raw = Raw::open(&self.context, self.args.receive_buffer()?, self.args.events)?;
        say(&Answer::Port(raw.port()?))?;
        Ok(raw)
    }

    fn sink(&self) -> Result<Answer, Failure> {
        let mut raw = self.bare()?;
        let watch = Watch::start();
        let arrived = raw.sink(|| is_stopped(&self.commands))?;
        Ok(Answer::Stopped { usage: watch.stop(), arrived })
    }

    fn echo(&self, exchange: Exchange) -> Result<Answer, Failure> {
        let mut raw = self.bare()?;
        let watch = Watch::start();
        let mut rounds = 0u32;
        raw.echo(exchange, || {
            rounds = rounds.wrapping_add(1);
            if self.args.events || rounds.is_multiple_of(ROUNDS) {
                return is_stopped(&self.commands);
            }
            Ok(false)
        })?;
        Ok(Answer::Stopped { usage: watch.stop(), arrived: Arrived::default() })
    }
}

/// Whether it was told to stop.
fn is_stopped(commands: &Receiver<Command>) -> Result<bool, Failure> {
    match commands.try_recv() {
        Err(TryRecvError::Empty) => Ok(false),
        Ok(Command::Stop) => Ok(true),
        Ok(_) | Err(TryRecvError::Disconnected) => Err(out_of_turn()),
    }
}

fn out_of_turn() -> Failure {
    Failure::usage("--as-peer is for uroce perf itself: start uroce perf without it")
}
