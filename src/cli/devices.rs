//! `uroce devices`: the devices of this host, and why an interface is none.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use uroce::host::{self, Capability, Interface, Privileges};
use uroce::link::PortHolder;
use uroce::software::{DeviceOptions, OpenError, slots_in_use};
use uroce::verbs::{DeviceAttributes, DeviceInfo, Gid, Limits, PortAttributes, PortState};
use uroce::wire::ROCE_PORT;

use super::output::{self, Failure};
use super::text::{ColorChoice, Palette, Tone, count, hanging};

/// The devices of this host, and why an interface is none.
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct DevicesArgs {
    /// Only this network interface [env: UROCE_DEVICE]
    #[arg(short = 'd', long, visible_alias = "ib-dev", value_name = "INTERFACE")]
    device: Option<String>,
    /// Every attribute of each device and port as ibv_devinfo -v lists them, and what this process
    /// may do
    #[arg(short = 'v', long)]
    verbose: bool,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
    /// When to use colours; auto heeds NO_COLOR
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    color: ColorChoice,
}

const HELP: &str = "\
Every network interface that is up and has an address is a device; nothing needs to be set up.
Nothing is opened or sent to find out.

Exit status: 0 if a device can be used, 1 if none can, 2 for wrong usage.

--json, whose fields stay: devices, a list of {name, interface, provider, usable, default, problems,
state (active, down, disabled), link_layer, loopback, mtu, active_mtu, gids: list of {index, gid,
address, type, port: {use (free, shared, guest, foreign, kernel), user, devices}}, limits,
capabilities (names), attributes and port_attributes {name: value} as ibv_devinfo -v names them};
process {user, capabilities}; links, the kinds that this version has.";

/// Everything that is told.
#[derive(Serialize)]
struct Report {
    devices: Vec<Device>,
    process: Process,
    links: [&'static str; 1],
}

#[derive(Serialize)]
struct Process {
    user: u32,
    capabilities: BTreeMap<&'static str, bool>,
}

/// A network interface as a device.
#[derive(Serialize)]
struct Device {
    name: String,
    interface: String,
    provider: &'static str,
    usable: bool,
    /// Whether programs get it that name none.
    default: bool,
    /// Why it is not usable.
    problems: Vec<String>,
    state: &'static str,
    link_layer: &'static str,
    loopback: bool,
    mtu: usize,
    active_mtu: usize,
    gids: Vec<GidEntry>,
    limits: BTreeMap<&'static str, u32>,
    capabilities: Vec<&'static str>,
    attributes: BTreeMap<&'static str, String>,
    port_attributes: BTreeMap<&'static str, String>,
    /// Both in the order in which they are shown.
    #[serde(skip)]
    tables: [Vec<(&'static str, String)>; 2],
}

#[derive(Serialize)]
struct GidEntry {
    index: usize,
    gid: String,
    address: IpAddr,
    #[serde(rename = "type")]
    kind: &'static str,
    port: PortUse,
}

/// Who has port 4791 of an address.
#[derive(Serialize)]
struct PortUse {
    #[serde(rename = "use")]
    usage: Usage,
    /// Of the process that holds it.
    user: Option<u32>,
    /// Software devices that are open on the address.
    devices: usize,
    #[serde(skip)]
    problem: Option<String>,
}

#[derive(Clone, Copy, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Usage {
    Free,
    /// By devices of this user.
    Shared,
    /// By devices of another user, which hand over what arrives.
    Guest,
    /// By another program.
    Foreign,
    /// By the kernel's driver.
    Kernel,
}

/// Runs the subcommand.
pub fn run(args: &DevicesArgs) -> Result<ExitCode, Failure> {
    let options = DeviceOptions::from_environment()?;
    let privileges = Privileges::current();
    let report = Report {
        devices: devices(&options, args.device.as_deref(), privileges)?,
        process: Process {
            user: privileges.user,
            capabilities: CAPABILITIES.map(|c| (c.name(), privileges.has(c))).into(),
        },
        links: ["udp"],
    };
    if args.json {
        output::print(&serde_json::to_string(&report)?)?;
    } else {
        output::print(lines(&report, args, privileges).join("\n").trim_end())?;
    }
    let usable = report.devices.iter().any(|device| device.usable);
    Ok(if usable { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

const CAPABILITIES: [Capability; 2] = [Capability::NetRaw, Capability::NetAdmin];

/// The devices in their order; of them only `only`, if given.
fn devices(
    options: &DeviceOptions,
    only: Option<&str>,
    privileges: Privileges,
) -> Result<Vec<Device>, Failure> {
    let interfaces = host::interfaces();
    let mut devices: Vec<Device> =
        interfaces.iter().map(|interface| device(interface, options, privileges)).collect();
    let is_default = |device: &&mut Device| match &options.interface {
        Some(interface) => device.interface == *interface,
        None => device.usable,
    };
    if let Some(device) = devices.iter_mut().find(is_default) {
        device.default = true;
        device.name = options.name.clone().unwrap_or_else(|| device.interface.clone());
    }
    if let Some(interface) = only.or(options.interface.as_deref()) {
        // Names those that there are.
        if let Err(error @ OpenError::NoInterface { .. }) = DeviceOptions::on(interface).check() {
            return Err(error.into());
        }
        devices.retain(|device| device.interface == interface);
    }
    Ok(devices)
}

fn device(interface: &Interface, options: &DeviceOptions, privileges: Privileges) -> Device {
    let info = &DeviceInfo::of_interface(interface);
    let attributes = DeviceAttributes::of_interface(Some(interface), &options.limits);
    let gids: Vec<GidEntry> =
        info.gids.iter().enumerate().map(|(index, gid)| entry(index, *gid, privileges)).collect();
    let of_interface = DeviceOptions::on(&info.interface).check().err();
    let mut problems: Vec<String> = of_interface.iter().map(ToString::to_string).collect();
    problems.extend(gids.iter().filter_map(|gid| gid.port.problem.clone()));
    Device {
        name: info.name.clone(),
        interface: info.interface.clone(),
        provider: "software",
        usable: problems.is_empty(),
        default: false,
        problems,
        state: match info.state {
            PortState::Active => "active",
            PortState::Down => "down",
            PortState::Disabled => "disabled",
        },
        link_layer: "Ethernet",
        loopback: info.is_loopback,
        mtu: info.mtu,
        active_mtu: info.path_mtu.bytes(),
        gids,
        limits: limits(&options.limits),
        capabilities: attributes.capabilities.iter().map(|capability| capability.name).collect(),
        attributes: attributes.table().into_iter().collect(),
        port_attributes: PortAttributes::of(info).table().into_iter().collect(),
        tables: [attributes.table(), PortAttributes::of(info).table()],
    }
}

fn limits(limits: &Limits) -> BTreeMap<&'static str, u32> {
    BTreeMap::from([
        ("queue_pairs", limits.queue_pairs),
        ("work_requests", limits.work_requests),
        ("segments", limits.segments),
        ("inline_bytes", limits.inline_bytes),
        ("completion_queues", limits.completion_queues),
        ("completions", limits.completions),
        ("shared_receive_queues", limits.shared_receive_queues),
        ("xrc_domains", limits.xrc_domains),
        ("domains", limits.domains),
        ("regions", limits.regions),
        ("windows", limits.windows),
        ("address_handles", limits.address_handles),
        ("multicast_groups", limits.multicast_groups),
        ("multicast_members", limits.multicast_members),
        ("multicast_attachments", limits.multicast_attachments),
        ("rd_atomic", limits.rd_atomic.into()),
    ])
}

fn entry(index: usize, gid: Gid, privileges: Privileges) -> GidEntry {
    let address = gid.address();
    let port = port_use(address, privileges);
    GidEntry { index, gid: gid.to_string(), address, kind: "RoCE v2", port }
}

fn port_use(address: IpAddr, privileges: Privileges) -> PortUse {
    let devices = slots_in_use(address).len();
    let (usage, user, problem) = match PortHolder::look(address, ROCE_PORT) {
        None => (Usage::Free, None, None),
        Some(PortHolder::User(user)) if devices > 0 && user == privileges.user => {
            (Usage::Shared, Some(user), None)
        }
        Some(PortHolder::User(user)) if devices > 0 => (Usage::Guest, Some(user), None),
        Some(holder) => {
            let kernel = matches!(holder, PortHolder::KernelRxe(_));
            let usage = if kernel { Usage::Kernel } else { Usage::Foreign };
            let user = if let PortHolder::User(user) = holder { Some(user) } else { None };
            let problem = format!("UDP port {ROCE_PORT} of {address} is held by {holder}");
            (usage, user, Some(problem))
        }
    };
    PortUse { usage, user, devices, problem }
}

/// The report for people.
fn lines(report: &Report, args: &DevicesArgs, privileges: Privileges) -> Vec<String> {
    let palette = Palette::new(args.color);
    let devices = report.devices.iter();
    let mut lines: Vec<String> =
        devices.flat_map(|device| device_lines(device, args.verbose, palette)).collect();
    if lines.is_empty() {
        let advice = "There is no network interface; `ip link set lo up` gives at least loopback.";
        lines.push(advice.to_owned());
    }
    if args.verbose {
        lines.extend(process_lines(privileges, palette));
    }
    lines
}

fn device_lines(device: &Device, verbose: bool, palette: Palette) -> Vec<String> {
    let Device { name, interface, .. } = device;
    let alias = if name == interface { String::new() } else { format!(" (interface {interface})") };
    let (tone, verdict) = match (device.usable, device.default) {
        (true, true) => (Tone::Good, "usable, and the default"),
        (true, false) => (Tone::Good, "usable"),
        (false, _) => (Tone::Bad, "not usable"),
    };
    let (name, verdict) = (palette.paint(Tone::Title, name), palette.paint(tone, verdict));
    let mut lines = vec![format!("{name}{alias}: {verdict}")];
    lines.extend(device.problems.iter().map(|problem| hanging("    because     ", problem)));
    let place = if device.loopback { ", reaches this host only" } else { "" };
    lines.push(format!("    state       {}{place}", device.state));
    lines.push(format!("    link layer  {}", device.link_layer));
    lines.push(format!("    MTU         {}, so path MTU up to {}", device.mtu, device.active_mtu));
    for GidEntry { index, gid, address, kind, port } in &device.gids {
        lines.push(format!("    GID {index:<8}{gid}  {kind}  {address}"));
        lines.extend(sentence(port).map(|sentence| hanging("                ", &sentence)));
    }
    if verbose {
        lines.push(hanging("    at most     ", &limit_list(&device.limits)));
        lines.extend(attribute_lines(device));
    }
    lines.push(String::new());
    lines
}

/// Attributes as `ibv_devinfo -v` names them.
fn attribute_lines(device: &Device) -> Vec<String> {
    let [of_device, of_port] = &device.tables;
    let row = |(name, value): &(&str, String)| format!("        {name:<28}{value}");
    let mut lines = vec!["    attributes".to_owned()];
    for entry in of_device {
        lines.push(row(entry));
        if entry.0 == "device_cap_flags" {
            let names = device.capabilities.join(" ");
            lines.push(hanging(&" ".repeat(36), &names));
        }
    }
    lines.push("    port 1".to_owned());
    lines.extend(of_port.iter().map(row));
    lines
}

fn limit_list(limits: &BTreeMap<&'static str, u32>) -> String {
    let parts = limits.iter().map(|(name, limit)| match *name {
        "segments" | "inline_bytes" => format!("{limit} {} a work request", name.replace('_', " ")),
        "work_requests" => format!("{limit} work requests a queue"),
        "completions" => format!("{limit} completions a queue"),
        "rd_atomic" => format!("{limit} READs and atomics under way a queue pair"),
        "domains" => format!("{limit} protection domains"),
        "xrc_domains" => format!("{limit} XRC domains"),
        "regions" => format!("{limit} memory regions"),
        "windows" => format!("{limit} memory windows"),
        "multicast_members" => format!("{limit} queue pairs in a multicast group"),
        "multicast_attachments" => format!("{limit} memberships in multicast groups"),
        _ => format!("{limit} {}", name.replace('_', " ")),
    });
    parts.collect::<Vec<_>>().join(", ")
}

/// What is worth telling of a port that is in use.
fn sentence(port: &PortUse) -> Option<String> {
    let open = count(port.devices as u64, "software device");
    let user = port.user.unwrap_or_default();
    match port.usage {
        Usage::Free | Usage::Foreign | Usage::Kernel => None,
        Usage::Shared => Some(format!("{open} open here; any number share port {ROCE_PORT}")),
        Usage::Guest => Some(format!(
            "{open} open here, and user id {user} holds port {ROCE_PORT}: a device of yours would \
             be its guest, which works but is slower, as arrivals pass through its processes"
        )),
    }
}

fn process_lines(privileges: Privileges, palette: Palette) -> Vec<String> {
    let mut lines = vec![
        palette.paint(Tone::Title, "this process"),
        format!("    user id     {}", privileges.user),
        "    links       udp, which needs no privilege".to_owned(),
    ];
    lines.extend(CAPABILITIES.iter().map(|capability| {
        let head = format!("    {:<15} ", capability.name());
        let missing = privileges.missing(*capability);
        hanging(&head, &missing.unwrap_or_else(|| "yes".to_owned()))
    }));
    lines
}
