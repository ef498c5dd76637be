//! What a shared port does about steering: sends echoes and questions, attaches programs. When and
//! why is decided in [`super::echo`] and [`super::steering`].

use std::ops::Range;

use super::echo::{Due, ECHO, Echo};
use super::shared_port::{Router, SharedPort};
use super::sharing::add;
use super::steering::{self, QUESTION, Question, Step};
use super::{slots, system};
use crate::engine::{Port, SourcePorts};
use crate::wire::{Flow, SentBurst};

impl SharedPort {
    /// Looks whether what is sent to this process comes here.
    pub(super) fn watch(&mut self) {
        let Router { watch, steering: Some(steering), now, .. } = &mut self.router else { return };
        watch.set_shared(steering.is_shared());
        match watch.advance(*now) {
            Due::Nothing => {}
            Due::Lost => steering.is_lost(*now),
            Due::Send(number) => self.send_echo(number),
        }
    }

    fn send_echo(&mut self, number: u32) {
        let mut echo = Some(Echo { slot: self.router.slot.number, number });
        self.send_to_port(1, ECHO, &mut |bytes| {
            echo.take()?.write(bytes);
            Some(())
        });
    }

    /// Goes on with measuring the group and attaching its program.
    pub(super) fn steer(&mut self) {
        let now = self.router.now;
        while let Some(steering) = &mut self.router.steering {
            match steering.advance(now) {
                Step::Wait => return,
                Step::Lock => {
                    self.measuring = slots::try_name(self.router.slot.address, "steering");
                    match self.measuring {
                        Some(_) => steering.start(now),
                        None => steering.refused(now),
                    }
                }
                Step::Ask { indexes, number } => self.ask(indexes, number),
                Step::Attach(members) => self.attach(&members),
                Step::Unlock => self.measuring = None,
            }
        }
        self.measuring = None;
    }

    /// Sends questions to our own port.
    fn ask(&mut self, mut indexes: Range<u16>, number: u32) {
        let slot = self.router.slot.number;
        self.send_to_port(indexes.len(), QUESTION, &mut |bytes| {
            let index = indexes.next()?;
            Question { index, slot, number }.write(bytes);
            Some(())
        });
    }

    /// Sends up to `count` datagrams of `length` bytes to the port that we share.
    fn send_to_port(
        &mut self,
        count: usize,
        length: usize,
        write: &mut dyn FnMut(&mut [u8]) -> Option<()>,
    ) {
        let address = self.router.slot.address;
        let source_port = match &self.link.capabilities().source_ports {
            SourcePorts::Only(ports) => ports[0],
            SourcePorts::Any => 0xc000,
        };
        let flow = Flow { source: address, destination: address, source_port };
        self.link.transmit(count, &mut |bytes| {
            write(bytes)?;
            let (traffic_class, first_identification) = (0, 0);
            let segment = length;
            Some(SentBurst { flow, traffic_class, first_identification, segment, length })
        });
    }

    /// A kernel that takes no program leaves everything to forwarding.
    fn attach(&mut self, members: &steering::Members) {
        let mut program = steering::program(members);
        let socket = self.link.receive_socket();
        let attached = socket.map(|socket| system::attach_reuseport_program(socket, &mut program));
        match attached {
            Some(Ok(())) => add(&self.router.counters.programs_attached, 1),
            _ => self.router.steering = None,
        }
    }
}
