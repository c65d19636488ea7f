//! Whether what a function returned is right: the rules of EvalPlus 0.3.1 on plain data.

use std::collections::BTreeSet;

use super::value::Value;

/// What is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Oracle {
    /// The outputs.
    #[default]
    Equal,
    /// What the outputs hold, without order and repetition.
    Members,
    /// Whether there is an output.
    Something,
    /// Whether the output is a root of the polynomial whose coefficients are the input.
    Root,
    /// The outputs; the surface of a square pyramid by its exact slant height is right too.
    PyramidSurface,
    /// The outputs; the sum of the differences digit by digit is right too.
    DigitDistance,
}

/// The relative tolerance of floats, and the absolute one where a task states none.
const RELATIVE: f64 = 1e-7;
const ABSOLUTE: f64 = 1e-6;

impl Oracle {
    /// That of a task by its id.
    pub fn of(id: &str) -> Oracle {
        match id {
            "HumanEval/32" => Self::Root,
            "Mbpp/2" | "Mbpp/7" | "Mbpp/111" | "Mbpp/140" | "Mbpp/232" | "Mbpp/249"
            | "Mbpp/579" | "Mbpp/769" => Self::Members,
            "Mbpp/737" | "Mbpp/787" | "Mbpp/794" => Self::Something,
            "Mbpp/581" => Self::PyramidSurface,
            "Mbpp/558" => Self::DigitDistance,
            _ => Self::Equal,
        }
    }

    /// Whether outputs without floats in them are right if and only if they are equal.
    pub fn is_exact(self, tolerance: f64) -> bool {
        self == Self::Equal && tolerance == 0.0
    }

    /// Whether `output` is right for `input`, where the reference gave `expected`. `tolerance`: the task's
    /// absolute one for numbers, 0 where there is none.
    pub fn accepts(
        self,
        input: &[Value],
        output: &Value,
        expected: &Value,
        tolerance: f64,
    ) -> bool {
        let exact = match self {
            Self::Equal => output.equals(expected),
            Self::Members => match (members(output), members(expected)) {
                (Some(one), Some(other)) => one == other,
                _ => return false,
            },
            Self::Something => {
                let wanted = *expected != Value::None;
                match output {
                    Value::Bool(said) => *said == wanted,
                    other => (*other != Value::None) == wanted,
                }
            }
            Self::Root => {
                let size = polynomial(input, output).map(f64::abs);
                return size.is_some_and(|size| size <= tolerance);
            }
            Self::PyramidSurface => {
                let near = || Some((real(output)? - pyramid_surface(input)?).abs() <= tolerance);
                output.equals(expected) || near().unwrap_or(false)
            }
            Self::DigitDistance => {
                let other = || digit_distance(input).is_some_and(|sum| output.equals(&sum));
                output.equals(expected) || other()
            }
        };
        let tolerance = if tolerance == 0.0 && floats(expected) { ABSOLUTE } else { tolerance };
        exact || (tolerance != 0.0 && close(output, expected, tolerance))
    }
}

/// A float, or a list or tuple of nothing but floats.
fn floats(value: &Value) -> bool {
    match value {
        Value::Float(_) => true,
        Value::List(values) | Value::Tuple(values) => {
            values.iter().all(|value| matches!(value, Value::Float(_)))
        }
        _ => false,
    }
}

/// Whether both are of one type, of one shape, and number for number within the tolerances:
/// |output − expected| ≤ absolute + relative · |expected|.
fn close(output: &Value, expected: &Value, tolerance: f64) -> bool {
    use Value::{Complex, Float, Int, List, Tuple};
    match (output, expected) {
        (List(outputs), List(expected)) | (Tuple(outputs), Tuple(expected)) => {
            outputs.len() == expected.len()
                && outputs
                    .iter()
                    .zip(expected)
                    .all(|(one, other)| close_within(one, other, tolerance))
        }
        (Float(_), Float(_)) | (Int(_), Int(_)) | (Complex(..), Complex(..)) => {
            close_within(output, expected, tolerance)
        }
        _ => false,
    }
}

/// The same below the top, where lists and tuples, and whole numbers and floats, are alike.
fn close_within(output: &Value, expected: &Value, tolerance: f64) -> bool {
    use Value::{Complex, Int, List, Tuple};
    match (output, expected) {
        (List(one) | Tuple(one), List(other) | Tuple(other)) => {
            one.len() == other.len()
                && one.iter().zip(other).all(|(one, other)| close_within(one, other, tolerance))
        }
        (Int(one), Int(other)) => match (one.parse::<i64>(), other.parse::<i64>()) {
            (Ok(one), Ok(other)) => {
                let apart = (i128::from(one) - i128::from(other)).unsigned_abs() as f64;
                apart <= tolerance + RELATIVE * other.unsigned_abs() as f64
            }
            // Numbers that no machine number holds are equal or not.
            _ => one == other,
        },
        (Complex(a, b), Complex(c, d)) if [a, b, c, d].iter().all(|part| part.is_finite()) => {
            (a - c).hypot(b - d) <= tolerance + RELATIVE * c.hypot(*d)
        }
        _ => match (real(output), real(expected)) {
            (Some(one), Some(other)) if one.is_finite() && other.is_finite() => {
                (one - other).abs() <= tolerance + RELATIVE * other.abs()
            }
            (Some(one), Some(other)) => one == other || (one.is_nan() && other.is_nan()),
            _ => false,
        },
    }
}

/// A real number that fits.
fn real(value: &Value) -> Option<f64> {
    match value {
        Value::Bool(one) => Some(f64::from(u8::from(*one))),
        Value::Int(digits) => digits.parse().ok().filter(|float: &f64| float.is_finite()),
        Value::Float(float) => Some(*float),
        _ => None,
    }
}

/// The keys of what a value holds; none where Python could make no set of it.
fn members(value: &Value) -> Option<BTreeSet<String>> {
    let hashed = |value: &Value| match hashable(value) {
        true => value.key(),
        false => None,
    };
    match value {
        Value::List(all) | Value::Tuple(all) | Value::Set(all) | Value::FrozenSet(all) => {
            all.iter().map(hashed).collect()
        }
        Value::Dict(pairs) => pairs.iter().map(|(key, _)| hashed(key)).collect(),
        Value::Text(text) => text.chars().map(|c| Value::Text(c.to_string()).key()).collect(),
        _ => None,
    }
}

fn hashable(value: &Value) -> bool {
    match value {
        Value::List(_) | Value::Set(_) | Value::Dict(_) => false,
        Value::Tuple(all) => all.iter().all(hashable),
        _ => true,
    }
}

/// Σ coefficient · xⁱ.
fn polynomial(input: &[Value], at: &Value) -> Option<f64> {
    let [Value::List(coefficients)] = input else { return None };
    let x = real(at)?;
    let mut sum = 0.0;
    for (power, coefficient) in coefficients.iter().enumerate() {
        sum += real(coefficient)? * x.powf(power as f64);
    }
    Some(sum)
}

/// Of a square pyramid with this edge and this height, rounded as Python does.
fn pyramid_surface(input: &[Value]) -> Option<f64> {
    let [edge, height] = input else { return None };
    let (edge, height) = (real(edge)?, real(height)?);
    let slant = ((edge / 2.0).powi(2) + height.powi(2)).sqrt();
    Some((edge.powi(2) + 4.0 * (edge * slant) / 2.0).round_ties_even())
}

/// The digits of both, the shorter one filled with zeros in front.
fn digit_distance(input: &[Value]) -> Option<Value> {
    let [Value::Int(one), Value::Int(other)] = input else { return None };
    let length = one.len().max(other.len());
    let digits = |number: &str| -> Option<Vec<u32>> {
        format!("{number:0>length$}").chars().map(|c| c.to_digit(10)).collect()
    };
    let sum: u32 = digits(one)?.iter().zip(digits(other)?).map(|(a, b)| a.abs_diff(b)).sum();
    Some(Value::Int(sum.to_string()))
}

#[cfg(test)]
mod tests {
    use super::super::super::json::Json;
    use super::*;

    fn value(wire: &str) -> Value {
        Value::of(&Json::read(wire).unwrap()).unwrap()
    }

    fn accepts(oracle: Oracle, input: &str, output: &str, expected: &str, tolerance: f64) -> bool {
        let Value::List(input) = value(input) else { panic!("{input}") };
        oracle.accepts(&input, &value(output), &value(expected), tolerance)
    }

    #[test]
    fn floats_are_right_within_a_tolerance_and_nothing_else_is() {
        for (output, expected, tolerance, right) in [
            ("0.30000000000000004", "0.3", 0.0, true),
            ("0.3000009", "0.3", 0.0, true),
            ("0.300002", "0.3", 0.0, false),
            ("0.30005", "0.3", 1e-4, true),
            ("1000000.05", "1000000.0", 0.0, true),
            ("1000000.2", "1000000.0", 0.0, false),
            // Of one type: a whole number is no float that is nearly it.
            ("3", "3.0000001", 0.0, false),
            ("3", "3.0", 0.0, true),
            ("[0.1,0.2000001]", "[0.1,0.2]", 0.0, true),
            (r#"{"t":[0.1,0.2000001]}"#, "[0.1,0.2]", 0.0, false),
            ("[0.1]", "[0.1,0.2]", 0.0, false),
            // Without a stated tolerance only floats one deep have one.
            ("[[0.1,0.2000001]]", "[[0.1,0.2]]", 0.0, false),
            ("[[0.1,0.2000001]]", "[[0.1,0.2]]", 1e-4, true),
            ("[1,0.2000001]", "[1,0.2]", 0.0, false),
            ("\"a\"", "\"b\"", 1e-4, false),
            ("Infinity", "Infinity", 0.0, true),
            ("1e308", "Infinity", 0.0, false),
            ("NaN", "1.0", 0.0, false),
            (r#"{"c":[1.0,2.0000001]}"#, r#"{"c":[1.0,2.0]}"#, 1e-4, true),
            (r#"{"c":[1.0,2.1]}"#, r#"{"c":[1.0,2.0]}"#, 1e-4, false),
            ("[]", "[]", 0.0, true),
            ("null", "[]", 0.0, false),
        ] {
            let said = accepts(Oracle::Equal, "[]", output, expected, tolerance);
            assert_eq!(said, right, "{output} {expected} {tolerance}");
        }
    }

    #[test]
    fn tasks_of_their_own_have_oracles_of_their_own() {
        use Oracle::{DigitDistance, Members, PyramidSurface, Root, Something};
        for (oracle, input, output, expected, tolerance, right) in [
            (Members, "[]", "[2,1,1]", r#"{"t":[1,2]}"#, 0.0, true),
            (Members, "[]", r#"{"s":["a","b"]}"#, "\"ab\"", 0.0, true),
            (Members, "[]", "[1]", "[1,2]", 0.0, false),
            (Members, "[]", "[[1]]", "[[1]]", 0.0, false),
            (Members, "[]", "null", "[]", 0.0, false),
            (Something, "[]", r#"{"x":"Match"}"#, "\"ab\"", 0.0, true),
            (Something, "[]", "true", "\"ab\"", 0.0, true),
            (Something, "[]", "false", "\"ab\"", 0.0, false),
            (Something, "[]", "null", "null", 0.0, true),
            (Something, "[]", "false", "null", 0.0, true),
            (Something, "[]", "\"no\"", "null", 0.0, false),
            // (x − 1)(x − 2): both roots are right, whichever the reference found.
            (Root, "[[2,-3,1]]", "2.00001", "1.0", 1e-4, true),
            (Root, "[[2,-3,1]]", "1", "2.0", 1e-4, true),
            (Root, "[[2,-3,1]]", "1.5", "1.0", 1e-4, false),
            (Root, "[[2,-3,1]]", "NaN", "1.0", 1e-4, false),
            (Root, "[[2,-3,1]]", "null", "1.0", 1e-4, false),
            // Edge 3, height 4: 9 + 2 · 3 · √18.25 = 34.63.
            (PyramidSurface, "[3,4]", "35", "33", 0.0, true),
            (PyramidSurface, "[3,4]", "33", "33", 0.0, true),
            (PyramidSurface, "[3,4]", "34", "33", 0.0, false),
            (DigitDistance, "[23,156]", "7", "99", 0.0, true),
            (DigitDistance, "[23,156]", "99", "99", 0.0, true),
            (DigitDistance, "[23,156]", "6", "99", 0.0, false),
        ] {
            let said = accepts(oracle, input, output, expected, tolerance);
            assert_eq!(said, right, "{oracle:?} {input} {output} {expected}");
        }
    }
}
