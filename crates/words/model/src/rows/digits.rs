//! Numbers as digits for keys, without the formatter: keys are built several times for every event that is handled, and
//! `format!` was a quarter of what that cost.

/// Digits on the stack. Sixteen hex digits hold any `u64`, ten decimal ones any `u32`.
pub(crate) struct Digits {
    text: [u8; 16],
    from: usize,
}

impl Digits {
    fn of(mut number: u64, base: u64, width: usize) -> Digits {
        let mut digits = Digits { text: [b'0'; 16], from: 16 };
        while number > 0 && digits.from > 0 {
            digits.from -= 1;
            digits.text[digits.from] = b"0123456789abcdef"[(number % base) as usize];
            number /= base;
        }
        digits.from = digits.from.min(16 - width.min(16));
        digits
    }

    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.text[self.from..]).unwrap_or_default()
    }
}

impl std::ops::Deref for Digits {
    type Target = str;
    fn deref(&self) -> &str {
        self.as_str()
    }
}

/// Formats like `{number:0width$x}`.
pub(crate) fn hex(number: u64, width: usize) -> Digits {
    Digits::of(number, 16, width)
}

/// Formats like `{number}`.
pub(crate) fn decimal(number: u32) -> Digits {
    Digits::of(u64::from(number), 10, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_what_the_formatter_writes() {
        for number in [0, 1, 9, 10, 15, 16, 255, 0xffff_ffff, 1_794_783_060_317, 1 << 60, u64::MAX] {
            for width in [1, 2, 4, 12, 16] {
                assert_eq!(hex(number, width).as_str(), format!("{number:0width$x}"));
            }
            let small = number as u32;
            assert_eq!(decimal(small).as_str(), small.to_string());
        }
    }
}
