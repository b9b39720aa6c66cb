package testservers

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gorm-fanout/fanout/internal/testservers/child"
)

const mysqlName = "MySQL"

var mysql = &service{
	name:         mysqlName,
	variable:     MySQLVariable,
	binVariable:  MySQLBinVariable,
	container:    "mysql",
	port:         "3306",
	find:         findMySQL,
	launch:       launchMySQL,
	probe:        probeMySQL,
	containerURL: func(address string) string { return mysqlDSN("root:fanout", address) },
}

var mysqlShutdown = []child.Step{
	{Signal: syscall.SIGTERM, Patience: 15 * time.Second},
	{Signal: syscall.SIGKILL, Patience: 5 * time.Second},
}

// mysqlDirs is where distributions and Homebrew put servers that they keep out of PATH.
var mysqlDirs = []string{
	"", "/usr/sbin", "/usr/libexec", "/usr/local/sbin",
	"/opt/homebrew/opt/mariadb*/bin", "/usr/local/opt/mariadb*/bin", "/home/linuxbrew/.linuxbrew/opt/mariadb*/bin",
	"/opt/homebrew/opt/mysql*/bin", "/usr/local/opt/mysql*/bin", "/home/linuxbrew/.linuxbrew/opt/mysql*/bin", "/usr/local/mysql/bin",
}

// findMySQL returns the server's path: the one that the variable names, else one in PATH or in the
// usual places, MariaDB's first.
func findMySQL(context.Context) (string, bool) {
	if path := os.Getenv(MySQLBinVariable); path != "" {
		found, err := exec.LookPath(path)
		return found, err == nil
	}
	for _, name := range []string{"mariadbd", "mysqld"} {
		for _, pattern := range mysqlDirs {
			if pattern == "" {
				if found, err := exec.LookPath(name); err == nil {
					return found, true
				}
				continue
			}
			paths, _ := filepath.Glob(filepath.Join(pattern, name)) // fails for a malformed pattern only
			for _, path := range paths {
				if found, err := exec.LookPath(path); err == nil {
					return found, true
				}
			}
		}
	}
	return "", false
}

// launchMySQL makes a data directory and starts its server.
func launchMySQL(ctx context.Context, bin string) (*Server, error) {
	files, err := initMySQL(ctx, bin)
	if err != nil {
		return nil, err
	}
	var settings []string
	if os.Getenv(fsyncVariable) == "off" {
		settings = []string{"--innodb-flush-log-at-trx-commit=2", "--innodb-doublewrite=0", "--sync-binlog=0"}
	}
	var version string
	run := localMySQL(ctx, files, bin, &version, settings...)
	run.usual = "30306"
	port, stop, err := run.run(ctx)
	if err != nil {
		return nil, errors.Join(err, files.remove())
	}
	return &Server{
		Name: mysqlName, URL: mysqlDSN("root", net.JoinHostPort("127.0.0.1", port)), Version: version,
		Origin: fmt.Sprintf("started from %s at 127.0.0.1:%s", bin, port), stop: stop,
	}, nil
}

// localMySQL is the server of a data directory, with options beside those of all tests; its version
// is known when it is ready.
func localMySQL(ctx context.Context, files *workspace, bin string, version *string, options ...string) *local {
	pidFile := files.path("server.pid")
	return &local{
		name:      mysqlName,
		workspace: files,
		command: func(port string) *exec.Cmd {
			return files.command(ctx, bin, append([]string{
				"--no-defaults", "--datadir=" + files.path("data"), "--port=" + port, "--bind-address=127.0.0.1", "--socket=" + files.path("s"),
				"--pid-file=" + pidFile, "--max-connections=1000", "--max-connect-errors=1000000",
			}, options...)...)
		},
		ready: func(ctx context.Context, port string, pid int) error {
			said, err := os.ReadFile(filepath.Clean(pidFile)) // it is written when connections are taken
			if err != nil || strings.TrimSpace(string(said)) != strconv.Itoa(pid) {
				return fmt.Errorf("the server has not written its number yet: %w", err)
			}
			*version, err = mysqlVersion(ctx, "tcp", net.JoinHostPort("127.0.0.1", port))
			return err
		},
		shutdown: mysqlShutdown,
	}
}

// initMySQL makes a workspace with a data directory. Every user of this machine may connect at
// 127.0.0.1 as root without a password: it holds test data only.
func initMySQL(ctx context.Context, bin string) (*workspace, error) {
	who, err := unprivileged(os.Geteuid())
	if err != nil {
		return nil, err
	}
	files, err := newWorkspace("mysql", who)
	if err != nil {
		return nil, err
	}
	if err := makeMySQLData(ctx, files, bin); err != nil {
		return nil, errors.Join(err, files.remove())
	}
	return files, nil
}

func makeMySQLData(ctx context.Context, files *workspace, bin string) error {
	said, err := exec.CommandContext(ctx, bin, "--no-defaults", "--version").Output()
	if err != nil {
		return fmt.Errorf("testservers: %s --version: %w", bin, err)
	}
	cmd := files.command(ctx, bin, "--no-defaults", "--initialize-insecure", "--datadir="+files.path("data"))
	if bytes.Contains(said, []byte("MariaDB")) {
		script, err := besideMariaDB(bin)
		if err != nil {
			return err
		}
		cmd = files.command(ctx, script, "--no-defaults", "--datadir="+files.path("data"), "--auth-root-authentication-method=normal", "--skip-test-db")
	}
	install, err := files.start(cmd)
	if err == nil {
		err = install.Wait()
	}
	if err != nil {
		return fmt.Errorf("testservers: %s: %w; the end of its output:\n%s", filepath.Base(cmd.Path), err, files.logTail())
	}
	return nil
}

// besideMariaDB finds the script that makes a data directory for a server.
func besideMariaDB(bin string) (string, error) {
	if target, err := filepath.EvalSymlinks(bin); err == nil {
		bin = target
	}
	dir := filepath.Dir(bin)
	for _, name := range []string{"mariadb-install-db", "mysql_install_db"} {
		for _, path := range []string{filepath.Join(dir, name), filepath.Join(dir, "..", "bin", name), filepath.Join(dir, "..", "scripts", name), name} {
			if found, err := exec.LookPath(path); err == nil {
				return found, nil
			}
		}
	}
	return "", fmt.Errorf("testservers: there is %s, but not mariadb-install-db, which makes its data directory: install the server's package wholly, "+
		"or name a running server in %s", bin, MySQLVariable)
}

func mysqlDSN(user, address string) string { return user + "@tcp(" + address + ")/" }

// mysqlAddress is the network and the address in a DSN.
var mysqlAddress = regexp.MustCompile(`(tcp|unix)\(([^()]+)\)/`)

// probeMySQL asks whether a server is there. Whether it lets us in, the first test tells: a login
// needs the driver, which this module does not have.
func probeMySQL(ctx context.Context, dsn string) (string, error) {
	found := mysqlAddress.FindStringSubmatch(dsn)
	if found == nil {
		return "", errors.New("want a DSN like user:password@tcp(host:3306)/")
	}
	return mysqlVersion(ctx, found[1], found[2])
}

// mysqlVersion reads the version out of the packet with which a server greets: a header of four
// bytes, the number of the protocol, and the version with a zero byte behind it
// (https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_connection_phase_packets_protocol_handshake_v10.html).
func mysqlVersion(ctx context.Context, network, address string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetReadDeadline(deadline); err != nil {
		return "", err
	}
	const protocol, longest = 10, 256
	greeting := bufio.NewReader(io.LimitReader(conn, longest))
	head := make([]byte, 5)
	if _, err := io.ReadFull(greeting, head); err != nil {
		return "", fmt.Errorf("the server does not greet: %w", err)
	}
	version, err := greeting.ReadString(0)
	if err != nil || head[4] != protocol {
		return "", fmt.Errorf("the server greets otherwise than MySQL does (protocol %d)", head[4])
	}
	return strings.TrimPrefix(strings.TrimSuffix(version, "\x00"), "5.5.5-"), nil // which MariaDB puts in front for old clients
}
