package testservers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

var mysql = &kind{
	flag: "mysql", name: "MySQL", variable: MySQLVariable, binVariable: MySQLBinVariable,
	container: "mysql", port: "3306", containerURL: func(address string) string { return "root:fanout@tcp(" + address + ")/" },
	find: func(context.Context) string {
		return inPath([]string{"mariadbd", "mysqld"}, "/usr/sbin", "/usr/libexec", "/opt/homebrew/opt/m*/bin", "/usr/local/opt/m*/bin")
	},
	launch: func(ctx context.Context, bin string) (*Own, error) {
		var options []string
		if os.Getenv(fsyncVariable) == "off" {
			options = []string{"--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0", "--innodb-fast-shutdown=2"}
		}
		return startMySQL(ctx, bin, options)
	},
	remedy: "Install MariaDB or MySQL",
}

// OwnMySQL starts a new MySQL or MariaDB server, which writes each commit to disk before it answers,
// with options ("--name=value") of the caller's. The error is [ErrNoBinary] where that is the reason.
func OwnMySQL(ctx context.Context, options ...string) (*Own, error) {
	bin, err := binary(MySQLBinVariable)
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
	if err := makeMySQLData(ctx, files, bin); err != nil {
		return nil, errors.Join(err, files.remove())
	}
	own := &Own{
		Name: "MySQL", files: files, shutdown: politely(15 * time.Second),
		url: func(address string) string { return "root@tcp(" + address + ")/" },
		command: func(port string) *exec.Cmd {
			return files.command(ctx, bin, append([]string{
				"--no-defaults", "--datadir=" + files.path("data"), "--port=" + port, "--bind-address=127.0.0.1", "--socket=" + files.path("s"),
				"--pid-file=" + files.path("pid"), "--max-connections=1000", "--max-connect-errors=1000000",
			}, options...)...)
		},
		ready: logs(`ready for connections\.\s+Version: '([^']+)'`),
	}
	return own.begin(ctx)
}

// makeMySQLData makes a data directory. Every user of this machine may connect at 127.0.0.1 as root
// without a password: it holds test data only.
func makeMySQLData(ctx context.Context, files *workspace, bin string) error {
	said, err := execute(ctx, bin, "--no-defaults", "--version")
	if err != nil {
		return err
	}
	if !strings.Contains(said, "MariaDB") {
		return files.run(files.command(ctx, bin, "--no-defaults", "--initialize-insecure", "--datadir="+files.path("data")))
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
