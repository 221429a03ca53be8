//! Sine and cosine of a place in a period.

/// Steps of the table in a turn: a power of two.
const STEPS: usize = 256;
/// Adding it leaves a whole number in the lowest bits of a double; taking it away again, that number.
const ROUND: f64 = 6_755_399_441_055_744.0;
/// Sine and cosine at each step.
static TABLE: [(f64, f64); STEPS] = table();

/// Taylor's series of sine and cosine, for at most an eighth of a turn.
const fn series(angle: f64) -> (f64, f64) {
    let square = angle * angle;
    let (mut sine, mut cosine, mut i) = (1.0, 1.0, 10);
    // From the smallest term on: x − x³/3! + …, 1 − x²/2! + …
    while i > 0 {
        let n = i as f64;
        sine = 1.0 - square / (2.0 * n * (2.0 * n + 1.0)) * sine;
        cosine = 1.0 - square / ((2.0 * n - 1.0) * 2.0 * n) * cosine;
        i -= 1;
    }
    (angle * sine, cosine)
}

const fn table() -> [(f64, f64); STEPS] {
    let mut table = [(0.0, 1.0); STEPS];
    let quarter = STEPS / 4;
    let mut i = 0;
    while i < STEPS {
        // The nearest quarter, and what is left.
        let quarters = (i + quarter / 2) / quarter;
        let rest = i as f64 - (quarters * quarter) as f64;
        let (sine, cosine) = series(rest * (std::f64::consts::TAU / STEPS as f64));
        table[i] = match quarters % 4 {
            0 => (sine, cosine),
            1 => (cosine, -sine),
            2 => (-sine, -cosine),
            _ => (-cosine, sine),
        };
        i += 1;
    }
    table
}

/// Sine and cosine of so many turns, of up to 10¹² of them, to 1e-11 of what these are: from a table, and the first terms
/// of Taylor's series for what lies between its steps. Much faster than the library's, and the same on every machine.
#[inline]
pub fn on_circle(turns: f64) -> (f64, f64) {
    let steps = turns * STEPS as f64;
    let shifted = steps + ROUND;
    let (sine, cosine) = TABLE[shifted.to_bits() as usize % STEPS];
    let x = (steps - (shifted - ROUND)) * (std::f64::consts::TAU / STEPS as f64);
    let square = x * x;
    let small_sine = x * (1.0 - square * (1.0 / 6.0));
    let small_cosine = 1.0 - square * (0.5 - square * (1.0 / 24.0));
    (sine * small_cosine + cosine * small_sine, cosine * small_cosine - sine * small_sine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_sine_and_cosine() {
        for i in -100_000..100_000 {
            let turns = f64::from(i) * 0.001_37;
            let (sine, cosine) = on_circle(turns);
            let angle = std::f64::consts::TAU * turns.fract();
            assert!(
                (sine - angle.sin()).abs() < 1e-11 && (cosine - angle.cos()).abs() < 1e-11,
                "{turns} {sine} {cosine}"
            );
        }
        assert_eq!(on_circle(0.0), (0.0, 1.0));
        assert_eq!(on_circle(1e6 + 0.25), (1.0, 0.0));
        assert_eq!(on_circle(-0.25), (-1.0, 0.0));
    }

    #[test]
    fn any_number_is_no_panic() {
        for turns in [f64::NAN, f64::INFINITY, f64::MAX, -1e300, 1e-300] {
            let _ = on_circle(turns);
        }
    }
}
