//! Joins the chunks of the engine's response into lines, and removes colours.

/// Whether a line is output of a build step, not of the engine itself.
pub(super) fn is_of_the_step(line: &str) -> bool {
    let of_the_engine = ["--->", "Removing intermediate container", "Step "];
    !line.trim().is_empty() && !of_the_engine.iter().any(|start| line.trim_start().starts_with(start))
}

/// Joins the chunks of the engine's response into the lines that a step's program writes.
#[derive(Debug, Default)]
pub(super) struct LineJoiner {
    pending: String,
}

impl LineJoiner {
    /// A longer line is reported in parts.
    const MAX_LINE: usize = 64 << 10;

    pub(super) fn add(&mut self, piece: &str, mut tell: impl FnMut(&str)) {
        for part in piece.split_inclusive('\n') {
            self.pending.push_str(part);
            if part.ends_with('\n') || self.pending.len() > Self::MAX_LINE {
                self.end(&mut tell);
            }
        }
    }

    pub(super) fn end(&mut self, mut tell: impl FnMut(&str)) {
        let line = std::mem::take(&mut self.pending);
        if !line.is_empty() {
            tell(line.trim_end_matches(['\n', '\r']));
        }
    }
}

/// Removes the colours that the engine adds to standard error of a step.
pub(super) fn without_colours(line: &str) -> String {
    let mut parts = line.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let rest = part.find('m').map_or(part, |end| &part[end + 1..]);
        text + rest
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_comes_in_pieces_is_one() {
        let mut lines = LineJoiner::default();
        let mut reported = Vec::new();
        for piece in [
            "Step 1/2 : RUN x\n",
            "\u{1b}[91m/bin/sh: 1: \u{1b}[0m",
            "\u{1b}[91mx: not found\n\u{1b}[0m",
            "end",
        ] {
            lines.add(piece, |line| reported.push(without_colours(line)));
        }
        lines.end(|line| reported.push(without_colours(line)));
        assert_eq!(reported, ["Step 1/2 : RUN x", "/bin/sh: 1: x: not found", "end"]);
        let long = "x".repeat(LineJoiner::MAX_LINE + 1);
        lines.add(&long, |line| assert_eq!(line, long));
        lines.end(|line| panic!("{line}"));
    }
}
