//! Options that choose and open a device; the environment variables of the same names are their
//! defaults.

use std::path::PathBuf;

use clap::Args;
use uroce::fault::FaultPlan;
use uroce::software::{DeviceOptions, Trace, parse_buffer_size, parse_trace};
use uroce::verbs::Context;

use super::output::Failure;
use super::text::count;

/// Which device, and what happens to its packets.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Device")]
pub struct DeviceArgs {
    /// Network interface, such as lo or eth0 [env: UROCE_DEVICE]
    #[arg(short = 'd', long, visible_alias = "ib-dev", value_name = "INTERFACE")]
    pub device: Option<String>,
    /// Record every frame in this file, as pcapng [env: UROCE_PCAP]
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
    /// What shall go wrong, such as loss=5%,delay=1ms,seed=7 [env: UROCE_FAULT]
    #[arg(long, value_name = "LIST")]
    pub fault: Option<FaultPlan>,
    /// Tell in words on standard error: errors, verbs, packets, with commas [env: UROCE_TRACE]
    #[arg(long, value_name = "LIST", value_parser = parse_trace)]
    pub trace: Option<Trace>,
    /// Drop packets that are right only with an IPv4 identification that uroce does not send [env: UROCE_STRICT]
    #[arg(long)]
    pub strict: bool,
    /// Bytes of socket receive buffer, such as 8M [env: UROCE_RECEIVE_BUFFER]
    #[arg(long, value_name = "BYTES", value_parser = parse_buffer_size)]
    pub receive_buffer: Option<usize>,
}

impl DeviceArgs {
    /// The environment's options, with those that were given in their place.
    pub fn options(&self) -> Result<DeviceOptions, Failure> {
        let mut options = DeviceOptions::from_environment()?;
        if let Some(interface) = &self.device {
            options.interface = Some(interface.clone());
            options.name = None;
        }
        options.capture = self.pcap.clone().or(options.capture);
        options.fault = self.fault.clone().or(options.fault);
        options.trace = self.trace.unwrap_or(options.trace);
        options.strict |= self.strict;
        options.receive_buffer = self.receive_buffer.or(options.receive_buffer);
        Ok(options)
    }

    /// Opens the device.
    pub fn open(&self) -> Result<Context, Failure> {
        Ok(Context::open(&self.options()?)?)
    }
}

/// Whether every packet is in the capture, if there is one.
pub fn check_capture(context: &Context) -> Result<(), Failure> {
    match context.counters()?.link.unrecorded {
        0 => Ok(()),
        missing => Err(Failure::usage(format!(
            "the capture lacks the last {}, as its file could not be written further: is the \
             disk full?",
            count(missing, "packet")
        ))),
    }
}
