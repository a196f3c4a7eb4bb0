//! The proleptic Gregorian calendar in whole days and milliseconds, for every instant a BSON date can hold.
//!
//! A BSON date spans some 292 million years either way, far more than calendar crates cover; the arithmetic between days
//! since 1970-01-01 and year, month, day is short and exact (Howard Hinnant, "chrono-compatible low-level date
//! algorithms": eras of 400 years, years that begin in March). Time zones come from `jiff` (see `zone`).

pub(crate) const MILLIS_A_SECOND: i64 = 1000;
pub(crate) const MILLIS_A_MINUTE: i64 = 60 * MILLIS_A_SECOND;
pub(crate) const MILLIS_AN_HOUR: i64 = 60 * MILLIS_A_MINUTE;
pub(crate) const MILLIS_A_DAY: i64 = 24 * MILLIS_AN_HOUR;
pub(crate) const MILLIS_A_WEEK: i64 = 7 * MILLIS_A_DAY;

/// The parts of a local date and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Civil {
    pub(crate) year: i64,
    /// 1 to 12.
    pub(crate) month: i64,
    /// 1 to 31.
    pub(crate) day: i64,
    pub(crate) hour: i64,
    pub(crate) minute: i64,
    pub(crate) second: i64,
    pub(crate) millisecond: i64,
    /// The days since 1970-01-01.
    pub(crate) days: i64,
}

/// The year and week of a day by ISO 8601.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IsoWeek {
    pub(crate) year: i64,
    /// 1 to 53.
    pub(crate) week: i64,
}

impl Civil {
    /// Computes the date and time of local milliseconds since 1970-01-01T00:00.
    pub(crate) fn from_millis(millis: i64) -> Civil {
        let days = millis.div_euclid(MILLIS_A_DAY);
        let in_day = millis.rem_euclid(MILLIS_A_DAY);
        let (year, month, day) = date_of_days(days);
        Civil {
            year,
            month,
            day,
            hour: in_day / MILLIS_AN_HOUR,
            minute: in_day / MILLIS_A_MINUTE % 60,
            second: in_day / MILLIS_A_SECOND % 60,
            millisecond: in_day % MILLIS_A_SECOND,
            days,
        }
    }

    /// Returns 1 (Sunday) to 7 (Saturday).
    pub(crate) fn day_of_week(&self) -> i64 {
        (self.days + 4).rem_euclid(7) + 1
    }

    /// Returns 1 (Monday) to 7 (Sunday).
    pub(crate) fn iso_day_of_week(&self) -> i64 {
        (self.days + 3).rem_euclid(7) + 1
    }

    /// Returns 1 to 366.
    pub(crate) fn day_of_year(&self) -> i64 {
        self.days - days_of_date(self.year, 1, 1) + 1
    }

    /// Returns 0 to 53: weeks begin on Sundays, the days before the first Sunday are week 0.
    pub(crate) fn week(&self) -> i64 {
        (self.day_of_year() - 1 + 7 - (self.day_of_week() - 1)) / 7
    }

    pub(crate) fn iso_week(&self) -> IsoWeek {
        // The week belongs to the year its Thursday lies in.
        let thursday = self.days - self.iso_day_of_week() + 4;
        let (year, _, _) = date_of_days(thursday);
        IsoWeek { year, week: (thursday - days_of_date(year, 1, 1)) / 7 + 1 }
    }
}

/// Returns the days since 1970-01-01 of a date; month 1 to 12, the day may lie outside the month.
pub(crate) fn days_of_date(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Returns year, month and day of the date that is `days` days after 1970-01-01.
pub(crate) fn date_of_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}
pub(crate) fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Returns the first day (Monday) of an ISO week year, in days since 1970-01-01.
pub(crate) fn iso_year_start(year: i64) -> i64 {
    let fourth_of_january = days_of_date(year, 1, 4);
    fourth_of_january - (fourth_of_january + 3).rem_euclid(7)
}
