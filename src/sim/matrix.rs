//! Which operation met which fault, and completed all the same.

use std::fmt;

use super::scenario::Operation;

/// What a packet is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Row {
    /// SEND; also the first packets of the other SENDs, which look the same.
    Send,
    /// SEND with immediate.
    SendImmediate,
    /// SEND with invalidate.
    SendInvalidate,
    /// WRITE; also the first packets of a WRITE with immediate.
    Write,
    /// WRITE with immediate.
    WriteImmediate,
    /// READ request.
    Read,
    /// Compare and swap.
    CompareSwap,
    /// Fetch and add.
    FetchAdd,
    /// WRITE through a memory window.
    WindowWrite,
    /// READ request through a memory window.
    WindowRead,
    /// SEND that invalidates a memory window.
    WindowInvalidate,
    /// READ response.
    ReadResponse,
    /// Answer to an atomic.
    AtomicAnswer,
    /// ACK.
    Acknowledge,
    /// NAK of any kind, also "receiver not ready".
    Nak,
    /// SEND on an unreliable connection, in any form.
    UcSend,
    /// WRITE on an unreliable connection, in any form.
    UcWrite,
    /// Datagram, with immediate data or without.
    UdSend,
    /// Datagram to a group.
    UdGroup,
    /// ATOMIC WRITE.
    AtomicWrite,
    /// FLUSH.
    Flush,
    /// SEND on an extended reliable connection, in any form.
    XrcSend,
    /// WRITE on an extended reliable connection, in any form.
    XrcWrite,
    /// READ request on an extended reliable connection.
    XrcRead,
    /// Atomic operation on an extended reliable connection.
    XrcAtomic,
}

/// What it met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Column {
    /// It was lost.
    Loss,
    /// It arrived twice.
    Duplicate,
    /// It was held back so that others passed it.
    Reorder,
    /// It took a way round, longer than timers wait.
    Detour,
    /// It, as all others, took its time.
    Delay,
    /// One of its bits was turned over.
    Corrupt,
    /// It was marked "congestion experienced".
    Mark,
    /// No receive was posted for it.
    Rnr,
    /// Its PSN lay within 16 of the wrap.
    Wrap,
}

impl Row {
    /// All of them.
    pub const ALL: [Self; 25] = [
        Self::Send,
        Self::SendImmediate,
        Self::SendInvalidate,
        Self::Write,
        Self::WriteImmediate,
        Self::Read,
        Self::CompareSwap,
        Self::FetchAdd,
        Self::WindowWrite,
        Self::WindowRead,
        Self::WindowInvalidate,
        Self::ReadResponse,
        Self::AtomicAnswer,
        Self::Acknowledge,
        Self::Nak,
        Self::UcSend,
        Self::UcWrite,
        Self::UdSend,
        Self::UdGroup,
        Self::AtomicWrite,
        Self::Flush,
        Self::XrcSend,
        Self::XrcWrite,
        Self::XrcRead,
        Self::XrcAtomic,
    ];

    /// Those that nobody acknowledges.
    pub(super) const UNACKED: [Self; 4] =
        [Self::UcSend, Self::UcWrite, Self::UdSend, Self::UdGroup];

    /// Name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::SendImmediate => "send_immediate",
            Self::SendInvalidate => "send_invalidate",
            Self::Write => "write",
            Self::WriteImmediate => "write_immediate",
            Self::Read => "read",
            Self::CompareSwap => "compare_swap",
            Self::FetchAdd => "fetch_add",
            Self::WindowWrite => "window_write",
            Self::WindowRead => "window_read",
            Self::WindowInvalidate => "window_invalidate",
            Self::ReadResponse => "read_response",
            Self::AtomicAnswer => "atomic_answer",
            Self::Acknowledge => "acknowledge",
            Self::Nak => "nak",
            Self::UcSend => "uc_send",
            Self::UcWrite => "uc_write",
            Self::UdSend => "ud_send",
            Self::UdGroup => "ud_group",
            Self::AtomicWrite => "atomic_write",
            Self::Flush => "flush",
            Self::XrcSend => "xrc_send",
            Self::XrcWrite => "xrc_write",
            Self::XrcRead => "xrc_read",
            Self::XrcAtomic => "xrc_atomic",
        }
    }

    /// The rows of packets that a completed operation shows to have done their work.
    const fn proven_by(operation: Operation) -> &'static [Self] {
        match operation {
            Operation::Send => &[Self::Send, Self::Acknowledge, Self::Nak],
            Operation::SendImmediate => {
                &[Self::SendImmediate, Self::Send, Self::Acknowledge, Self::Nak]
            }
            Operation::SendInvalidate => &[
                Self::SendInvalidate,
                Self::WindowInvalidate,
                Self::Send,
                Self::Acknowledge,
                Self::Nak,
            ],
            Operation::Write => &[Self::Write, Self::WindowWrite, Self::Acknowledge, Self::Nak],
            Operation::WriteImmediate => &[
                Self::WriteImmediate,
                Self::Write,
                Self::WindowWrite,
                Self::Acknowledge,
                Self::Nak,
            ],
            Operation::Read => &[Self::Read, Self::WindowRead, Self::ReadResponse, Self::Nak],
            Operation::CompareSwap => &[Self::CompareSwap, Self::AtomicAnswer, Self::Nak],
            Operation::FetchAdd => &[Self::FetchAdd, Self::AtomicAnswer, Self::Nak],
            Operation::AtomicWrite => &[Self::AtomicWrite, Self::ReadResponse, Self::Nak],
            Operation::Flush => &[Self::Flush, Self::ReadResponse, Self::Nak],
            Operation::LocalInvalidate | Operation::BindWindow => &[],
        }
    }
}

impl Column {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Loss,
        Self::Duplicate,
        Self::Reorder,
        Self::Detour,
        Self::Delay,
        Self::Corrupt,
        Self::Mark,
        Self::Rnr,
        Self::Wrap,
    ];

    /// Name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::Duplicate => "duplicate",
            Self::Reorder => "reorder",
            Self::Detour => "detour",
            Self::Delay => "delay",
            Self::Corrupt => "corrupt",
            Self::Mark => "ce",
            Self::Rnr => "rnr",
            Self::Wrap => "wrap",
        }
    }
}

type Counts = [[u64; Column::ALL.len()]; Row::ALL.len()];

/// Operation × fault: how often a packet of the operation met the fault, and the operation
/// completed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matrix {
    counts: Counts,
}

impl Matrix {
    /// One cell.
    pub fn count(&self, row: Row, column: Column) -> u64 {
        self.counts[row as usize][column as usize]
    }

    /// Whether the fault can meet the operation: only what consumes a receive can lack one.
    pub const fn applies(row: Row, column: Column) -> bool {
        let consumes = matches!(
            row,
            Row::Send
                | Row::SendImmediate
                | Row::SendInvalidate
                | Row::WindowInvalidate
                | Row::WriteImmediate
                | Row::UcSend
                | Row::UcWrite
                | Row::UdSend
                | Row::UdGroup
                | Row::XrcSend
                | Row::XrcWrite
        );
        consumes || !matches!(column, Column::Rnr)
    }

    /// A packet met a fault that ends what is known of it.
    pub(super) fn meet(&mut self, row: Row, column: Column) {
        self.counts[row as usize][column as usize] += 1;
    }

    /// Adds another run's counts.
    pub fn merge(&mut self, other: &Self) {
        for row in Row::ALL {
            for column in Column::ALL {
                self.counts[row as usize][column as usize] += other.count(row, column);
            }
        }
    }

    /// The cells that apply and are zero.
    pub fn empty_cells(&self) -> Vec<(Row, Column)> {
        let cells =
            Row::ALL.iter().flat_map(|row| Column::ALL.iter().map(|column| (*row, *column)));
        cells
            .filter(|(row, column)| Self::applies(*row, *column))
            .filter(|(row, column)| self.count(*row, *column) == 0)
            .collect()
    }
}

impl fmt::Display for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Long runs have counts of eight digits: two spaces before the longest.
        let width = |column: Column| {
            let most = Row::ALL.into_iter().map(|row| self.count(row, column)).max().unwrap_or(0);
            (column.name().len().max(most.to_string().len()) + 2).max(8)
        };
        write!(f, "{:<17}", "")?;
        for column in Column::ALL {
            write!(f, "{:>1$}", column.name(), width(column))?;
        }
        for row in Row::ALL {
            write!(f, "\n{:<17}", row.name())?;
            for column in Column::ALL {
                let width = width(column);
                if Self::applies(row, column) {
                    write!(f, "{:>width$}", self.count(row, column))?;
                } else {
                    write!(f, "{:>width$}", "-")?;
                }
            }
        }
        Ok(())
    }
}

/// Faults that one queue pair's packets met and that no completion has answered yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Met {
    counts: Counts,
}

impl Met {
    pub(super) fn meet(&mut self, row: Row, column: Column) {
        self.counts[row as usize][column as usize] += 1;
    }

    /// An operation completed: what it proves moves to the matrix.
    pub(super) fn prove(&mut self, operation: Operation, matrix: &mut Matrix) {
        for row in Row::proven_by(operation) {
            self.prove_row(*row, matrix);
        }
    }

    /// A request that makes packets of this kind ended.
    pub(super) fn prove_row(&mut self, row: Row, matrix: &mut Matrix) {
        for column in Column::ALL {
            let met = std::mem::take(&mut self.counts[row as usize][column as usize]);
            matrix.counts[row as usize][column as usize] += met;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_any_length_stand_apart() {
        let mut matrix = Matrix::default();
        matrix.counts[Row::ALL[0] as usize] = [123_456_789; Column::ALL.len()];
        let text = matrix.to_string();
        let line = text.lines().nth(1).unwrap();
        assert_eq!(line.split_whitespace().count(), 1 + Column::ALL.len(), "{line}");
    }
}
