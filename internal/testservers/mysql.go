package testservers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

var mariaDB = &kind{
	flag: "mariadb", name: "MariaDB", variable: MariaDBVariable, binVariable: MariaDBBinVariable,
	container: "mariadb", port: "3306", containerURL: mysqlURL("root:fanout"),
	find: func(context.Context) string {
		return inPath([]string{"mariadbd"}, "/usr/sbin", "/usr/libexec", "/opt/homebrew/opt/m*/bin", "/usr/local/opt/m*/bin")
	},
	launch: launchMySQL,
	remedy: "Install MariaDB",
}

var mysql = &kind{
	flag: "mysql", name: "MySQL", variable: MySQLVariable, binVariable: MySQLBinVariable,
	container: "mysql", port: "3306", containerURL: mysqlURL("root:fanout"),
	find: func(ctx context.Context) string {
		found := inPath([]string{"mysqld"}, "/usr/sbin", "/usr/libexec", "/opt/homebrew/opt/mysql*/bin", "/usr/local/opt/mysql*/bin", filepath.Join(cacheDir(), "mysql"))
		if said, err := execute(ctx, found, "--version"); err != nil || strings.Contains(said, "MariaDB") {
			return ""
		}
		return found
	},
	tool: "dpkg", fetch: fetchMySQL, launch: launchMySQL,
	remedy: "Install MySQL (on Debian it is fetched)",
}

// EitherMySQL is [MariaDBVariable], unless MySQL alone is given.
func EitherMySQL() string {
	if os.Getenv(MariaDBVariable) == "" && os.Getenv(MySQLVariable) != "" {
		return MySQLVariable
	}
	return MariaDBVariable
}

func mysqlURL(user string) func(address string) string {
	return func(address string) string { return user + "@tcp(" + address + ")/" }
}

func launchMySQL(ctx context.Context, bin string) (*Own, error) {
	var options []string
	if os.Getenv(fsyncVariable) == "off" {
		options = []string{"--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0", "--innodb-fast-shutdown=2", "--skip-log-bin"}
	}
	return startMySQL(ctx, bin, options)
}

// fetchMySQL unpacks MySQL beside the system, with the C library that it needs, and returns a script that runs it.
func fetchMySQL(ctx context.Context, log io.Writer) (string, error) {
	dir, err := cached(log, "mysql", "MySQL from Debian's unstable suite", func(dir string) error {
		_, err := execute(ctx, "sh", "-c", unpackMySQL, "sh", dir)
		return err
	})
	return filepath.Join(dir, "mysqld"), err
}

// unpackMySQL makes the directory $1. It configures apt for Debian's unstable suite, beside the system's own lists: no
// stable suite has MySQL.
const unpackMySQL = `set -eu
apt=$1/apt
mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial"
: >"$apt/status"
echo 'deb http://deb.debian.org/debian sid main' >"$apt/sid.list"
cat >"$apt/apt.conf" <<EOF
Dir::State "$apt/state"; Dir::State::status "$apt/status"; Dir::Cache "$apt/cache";
Dir::Etc::sourcelist "$apt/sid.list"; Dir::Etc::sourceparts "-"; APT::Sandbox::User "root";
EOF
export APT_CONFIG="$apt/apt.conf"
apt-get -qq update
apt-get -y --no-install-recommends --print-uris install mysql-server-core | sed -n "s/^'[^']*' \([^_]*\)_.*/\1/p" | grep -Ev '^(perl|libperl)' >"$apt/names"
cd "$apt"
apt-get -qq download $(cat names)
for package in *.deb; do dpkg -x "$package" "$1/root"; done
cat >"$1/mysqld" <<'EOF'
#!/bin/sh
root=$(dirname "$(realpath "$0")")/root
exec "$(find "$root" -name 'ld-linux*.so*' | head -1)" --library-path "$(find "$root" -name '*.so*' -printf '%h\n' | sort -u | paste -sd:)" \
    "$root/usr/sbin/mysqld" "$@" --basedir="$root/usr" --lc-messages-dir="$root/usr/share/mysql" --character-sets-dir="$root/usr/share/mysql/charsets" \
    --plugin-dir="$root/usr/lib/mysql/plugin" --secure-file-priv=NULL
EOF
rm -r "$apt"
chmod -R a+rX "$1"
chmod a+x "$1/mysqld"
`

// OwnMySQL starts a new server, MariaDB where there is one and else MySQL, which writes each commit to disk before it
// answers, with options ("--name=value") of the caller's. The error is [ErrNoBinary] where that is the reason.
func OwnMySQL(ctx context.Context, options ...string) (*Own, error) {
	bin, err := binary(MariaDBBinVariable)
	if err != nil {
		bin, err = binary(MySQLBinVariable)
	}
	if err != nil {
		return nil, err
	}
	return startMySQL(ctx, bin, options)
}

func startMySQL(ctx context.Context, bin string, options []string) (*Own, error) {
	files, err := newWorkspace("mysql", true)
	if err != nil {
		return nil, err
	}
	if err := makeMySQLData(ctx, files, bin, options); err != nil {
		return nil, errors.Join(err, files.remove())
	}
	own := &Own{
		Name: "MySQL", files: files, shutdown: politely(15 * time.Second),
		url: mysqlURL("root"),
		command: func(port string) *exec.Cmd {
			return files.command(ctx, bin, append([]string{
				"--no-defaults", "--datadir=" + files.path("data"), "--port=" + port, "--bind-address=127.0.0.1", "--socket=" + files.path("s"),
				"--pid-file=" + files.path("pid"), "--max-connections=1000", "--max-connect-errors=1000000", "--loose-mysqlx=OFF",
			}, options...)...)
		},
		ready: logs(`ready for connections\.\s+Version: '([^']+)'`),
	}
	return own.begin(ctx)
}

// makeMySQLData makes a data directory. Every user of this machine may connect at 127.0.0.1 as root
// without a password: it holds test data only.
func makeMySQLData(ctx context.Context, files *workspace, bin string, options []string) error {
	said, err := execute(ctx, bin, "--no-defaults", "--version")
	if err != nil {
		return err
	}
	if !strings.Contains(said, "MariaDB") {
		made := slices.DeleteFunc(slices.Clone(options), func(option string) bool { return !strings.HasPrefix(option, "--lower-case-") }) // the only one that must be the same
		return files.run(files.command(ctx, bin, append([]string{"--no-defaults", "--initialize-insecure", "--datadir=" + files.path("data")}, made...)...))
	}
	if target, err := filepath.EvalSymlinks(bin); err == nil {
		bin = target
	}
	script := inPath([]string{"mariadb-install-db", "mysql_install_db"}, filepath.Dir(bin), filepath.Join(filepath.Dir(bin), "..", "bin"))
	if script == "" {
		return fmt.Errorf("testservers: %s lacks mariadb-install-db: install the whole package, or name a running server in %s", bin, MySQLVariable)
	}
	return files.run(files.command(ctx, script, "--no-defaults", "--datadir="+files.path("data"), "--auth-root-authentication-method=normal", "--skip-test-db"))
}
