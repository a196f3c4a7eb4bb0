//! Bots that name themselves in their `User-Agent`. Those that do not are not found.

use std::sync::LazyLock;

/// The list of the words that the names of bots have in them, with comments.
const LIST: &str = include_str!("bots.txt");
/// The words of the list.
static WORDS: LazyLock<Vec<&str>> =
    LazyLock::new(|| LIST.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).collect());
/// A brand of telephones, whose name ends as those of bots do.
const NOT_A_BOT: &str = "cubot";

/// The treatment of views by bots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BotPolicy {
    /// They are counted as all others.
    #[default]
    Count,
    /// They are not counted.
    Refuse,
}

/// Returns whether a `User-Agent` is that of a bot.
pub(super) fn is_bot(agent: &str) -> bool {
    let agent = agent.to_ascii_lowercase().replace(NOT_A_BOT, "");
    let is_a_word = |word: &str, at: usize| {
        let behind = agent.as_bytes().get(at + word.len());
        behind.is_none_or(|next| !next.is_ascii_alphabetic())
    };
    WORDS.iter().any(|word| agent.match_indices(word).any(|(at, _)| is_a_word(word, at)))
}

#[cfg(test)]
mod tests {
    use super::{LIST, is_bot};

    #[test]
    fn bots_are_told_from_browsers() {
        // As their owners document them.
        for bot in [
            "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
            "Mozilla/5.0 (compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)",
            "Mozilla/5.0 (compatible; Yahoo! Slurp; http://help.yahoo.com/help/us/ysearch/slurp)",
            "Mozilla/5.0 (compatible; Baiduspider/2.0; +http://www.baidu.com/search/spider.html)",
            "facebookexternalhit/1.1 (+http://www.facebook.com/externalhit_uatext.php)",
            "Mediapartners-Google",
            "GPTBot",
            "CCBot/2.0 (https://commoncrawl.org/faq/)",
        ] {
            assert!(is_bot(bot), "{bot}");
        }
        for browser in [
            "",
            "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
            "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.5 Mobile/15E148 Safari/604.1",
            "Mozilla/5.0 (Linux; Android 9; CUBOT_NOTE_S) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/138.0.0.0 Mobile Safari/537.36",
            "curl/8.5.0",
            "bottle/0.13",
        ] {
            assert!(!is_bot(browser), "{browser}");
        }
    }

    #[test]
    fn the_words_are_in_lower_case() {
        assert_eq!(LIST.lines().filter(|line| !line.starts_with('#') && **line != line.to_lowercase()).count(), 0);
    }
}
