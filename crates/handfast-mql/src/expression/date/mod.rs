//! Operators on dates: parts, text, arithmetic, time zones.

mod arguments;
mod arithmetic;
pub(crate) mod civil;
mod difference;
mod format;
mod parse;
mod parts;
#[cfg(test)]
mod tests;
mod truncate;
mod unit;
mod zone;

use bson::RawBsonRef;

use self::civil::Civil;
pub(crate) use self::{
    arguments::object_id_millis, arithmetic::add_units, format::iso_text, parse::parse_text, unit::Unit,
};
use super::{compile::Compiler, node::Node};
use crate::error::Result;

pub(crate) fn compile(compiler: &mut Compiler<'_>, name: &str, argument: RawBsonRef<'_>) -> Result<Option<Node>> {
    Ok(Some(match name {
        "$year" => parts::one(compiler, "$year", argument, |civil| civil.year)?,
        "$month" => parts::one(compiler, "$month", argument, |civil| civil.month)?,
        "$dayOfMonth" => parts::one(compiler, "$dayOfMonth", argument, |civil| civil.day)?,
        "$dayOfWeek" => parts::one(compiler, "$dayOfWeek", argument, Civil::day_of_week)?,
        "$dayOfYear" => parts::one(compiler, "$dayOfYear", argument, Civil::day_of_year)?,
        "$hour" => parts::one(compiler, "$hour", argument, |civil| civil.hour)?,
        "$minute" => parts::one(compiler, "$minute", argument, |civil| civil.minute)?,
        "$second" => parts::one(compiler, "$second", argument, |civil| civil.second)?,
        "$millisecond" => parts::one(compiler, "$millisecond", argument, |civil| civil.millisecond)?,
        "$week" => parts::one(compiler, "$week", argument, Civil::week)?,
        "$isoWeek" => parts::one(compiler, "$isoWeek", argument, |civil| civil.iso_week().week)?,
        "$isoWeekYear" => parts::one(compiler, "$isoWeekYear", argument, |civil| civil.iso_week().year)?,
        "$isoDayOfWeek" => parts::one(compiler, "$isoDayOfWeek", argument, Civil::iso_day_of_week)?,
        "$dateToParts" => parts::to_parts(compiler, argument)?,
        "$dateFromParts" => parts::from_parts(compiler, argument)?,
        "$dateToString" => format::compile(compiler, argument)?,
        "$dateFromString" => parse::compile(compiler, argument)?,
        "$dateAdd" => arithmetic::compile(compiler, "$dateAdd", argument, 1)?,
        "$dateSubtract" => arithmetic::compile(compiler, "$dateSubtract", argument, -1)?,
        "$dateDiff" => difference::compile(compiler, argument)?,
        "$dateTrunc" => truncate::compile(compiler, argument)?,
        _ => return Ok(None),
    }))
}
