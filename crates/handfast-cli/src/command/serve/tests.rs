use super::without_secrets;

#[test]
fn clients_see_no_password_of_the_command_line() {
    let check = |line: &str, expected: &str| {
        let shown = without_secrets(line.split(' ').map(str::to_owned));
        assert_eq!(shown.join(" "), expected);
    };
    check("handfast serve --data d", "handfast serve --data d");
    let uri = "mongodb://boss:s3cret@db:1/?tls=true";
    check(&format!("handfast serve --store {uri} --port 1"), "handfast serve --store mongodb://db:1 --port 1");
    check(&format!("handfast serve --store={uri}"), "handfast serve --store=mongodb://db:1");
    check("handfast serve --store boss:s3cret@db", "handfast serve --store mongodb://..");
}
