//! Text for people: colours where they are wanted, lines that fit.

use std::io::IsTerminal;

use clap::ValueEnum;

/// The columns that all output fits.
pub const WIDTH: usize = 100;

/// When to colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ColorChoice {
    /// On a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    /// In any case.
    Always,
    /// Not at all.
    Never,
}

/// What a colour stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// A title.
    Title,
    /// What matters less.
    Quiet,
    /// Went well.
    Good,
    /// Deserves a look.
    Notable,
    /// Went wrong.
    Bad,
}

/// Colours, or none.
#[derive(Clone, Copy, Debug)]
pub struct Palette {
    coloured: bool,
}

impl Palette {
    /// Colours for standard output.
    pub fn new(choice: ColorChoice) -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let coloured = match choice {
            ColorChoice::Auto => std::io::stdout().is_terminal() && !refused,
            ColorChoice::Always => true,
            ColorChoice::Never => false,
        };
        Self { coloured }
    }

    /// The text in the colour of `tone`.
    pub fn paint(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Title => "1",
            Tone::Quiet => "2",
            Tone::Good => "32",
            Tone::Notable => "33",
            Tone::Bad => "31",
        };
        if self.coloured { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// The words of a text in lines of at most `width` characters; a longer word has its own line.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// A text in lines that fit, the first after `head`, the others below where it begins.
pub fn hanging(head: &str, text: &str) -> String {
    let indent = head.chars().count();
    let lines = wrap(text, WIDTH.saturating_sub(indent).max(20));
    let separator = format!("\n{}", " ".repeat(indent));
    format!("{head}{}", lines.join(&separator))
}

/// `1 packet`, `2 packets`.
pub fn count(number: u64, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_kept_whole_and_lines_short() {
        assert_eq!(wrap("one two  three", 7), ["one two", "three"]);
        assert_eq!(wrap("a incomprehensible b", 5), ["a", "incomprehensible", "b"]);
        assert!(wrap("", 5).is_empty());
        let text = hanging("    head  ", &"word ".repeat(60));
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH));
        assert!(text.lines().skip(1).all(|line| line.starts_with("          word")));
    }

    #[test]
    fn colours_are_there_only_if_wanted() {
        assert_eq!(Palette::new(ColorChoice::Never).paint(Tone::Bad, "x"), "x");
        assert_eq!(Palette::new(ColorChoice::Always).paint(Tone::Bad, "x"), "\x1b[31mx\x1b[0m");
    }

    #[test]
    fn plurals() {
        assert_eq!(
            (count(1, "packet"), count(2, "packet")),
            ("1 packet".into(), "2 packets".into())
        );
    }
}
