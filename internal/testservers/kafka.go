package testservers

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gorm-fanout/fanout/internal/testservers/child"
)

const (
	kafkaName = "Kafka"
	// kafkaVersion is the one that is fetched.
	kafkaVersion = "4.1.1"
	kafkaJava    = 17 // the oldest that runs it
)

var kafka = &service{
	name:         kafkaName,
	variable:     KafkaVariable,
	binVariable:  KafkaLibVariable,
	container:    "kafka",
	port:         "30094",
	find:         findKafka,
	fetch:        fetchKafka,
	launch:       launchKafka,
	probe:        probeKafka,
	containerURL: func(address string) string { return address },
	remedy: "make test-all and make chaos fetch it where Java " + strconv.Itoa(kafkaJava) + " and Maven are; " + KafkaVariable + " names a cluster, " +
		KafkaLibVariable + " the libs directory of a Kafka 4",
}

// kafkaShutdown of a server whose data is not needed: a node asks the others before it ends politely,
// and waits for those that are gone.
var kafkaShutdown = []child.Step{{Signal: syscall.SIGKILL, Patience: 10 * time.Second}}

// findKafka returns the directory that the variable names, where Java can run it. One of the system
// may be of any version.
func findKafka(ctx context.Context) (string, bool) {
	dir := os.Getenv(KafkaLibVariable)
	if dir == "" || jarVersion(dir) == "" {
		return "", false
	}
	_, err := findJava(ctx, kafkaJava)
	return dir, err == nil
}

// jarVersion is the version of the Kafka in a directory, by the name of its jar; empty: there is none.
func jarVersion(libs string) string {
	jars, _ := filepath.Glob(filepath.Join(libs, "kafka_2.1?-*.jar")) // fails for a malformed pattern only
	for _, jar := range jars {
		if _, version, found := strings.Cut(strings.TrimSuffix(filepath.Base(jar), ".jar"), "-"); found && !strings.Contains(version, "-") {
			return version
		}
	}
	return ""
}

// kafkaProject has Maven copy a Kafka with all that it needs, and a logger that writes to standard
// error.
const kafkaProject = `<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>fanout</groupId>
  <artifactId>test-kafka</artifactId>
  <version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>` + kafkaVersion + `</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
`

// fetchKafka fetches the jars with Maven into the cache, which keeps one directory of each version.
func fetchKafka(ctx context.Context, log io.Writer) (string, error) {
	if _, err := findJava(ctx, kafkaJava); err != nil {
		return "", err
	}
	maven, err := exec.LookPath("mvn")
	if err != nil {
		return "", fmt.Errorf("testservers: Maven is not on this machine: %w", err)
	}
	dir, err := cached(log, "kafka-"+kafkaVersion, "Kafka "+kafkaVersion+" with Maven", func(dir string) error {
		project := filepath.Join(dir, "pom.xml")
		if err := os.WriteFile(project, []byte(kafkaProject), 0o600); err != nil {
			return err
		}
		_, err := execute(ctx, maven, "--batch-mode", "--quiet", "--file", project,
			"dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory="+filepath.Join(dir, "libs"))
		return err
	})
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "libs"), nil
}

// launchKafka starts a cluster of one node that keeps nothing.
func launchKafka(ctx context.Context, libs string) (*Server, error) {
	nodes, err := newKafkaNodes(ctx, libs, 1, false)
	if err != nil {
		return nil, err
	}
	run := nodes[0].local(ctx)
	run.usual = "30092"
	port, stop, err := run.run(ctx)
	if err != nil {
		return nil, errors.Join(err, nodes[0].files.remove())
	}
	address := net.JoinHostPort("127.0.0.1", port)
	return &Server{
		Name: kafkaName, URL: address, Version: jarVersion(libs), Origin: fmt.Sprintf("started from %s at %s", libs, address), stop: stop,
	}, nil
}

// kafkaNode is one node of a cluster, broker and controller in one process (KRaft).
type kafkaNode struct {
	java, libs string
	files      *workspace
	cluster    string // its id, new each time
	id         int
	voters     []string // the addresses of all controllers, by id from 1 on
	secured    string   // the port of a listener with a login; empty: there is none
	further    []furtherListener
}

// furtherListener is a node's of a [KafkaListener].
type furtherListener struct{ name, address, advertised string }

// newKafkaNodes prepares the nodes of a new cluster. With secured each has a listener with SASL PLAIN
// beside the one of everyone, for the users of [SecuredKafka].
func newKafkaNodes(ctx context.Context, libs string, n int, secured bool, further ...KafkaListener) (nodes []*kafkaNode, err error) {
	java, err := findJava(ctx, kafkaJava)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			for _, node := range nodes {
				err = errors.Join(err, node.files.remove())
			}
			nodes = nil
		}
	}()
	var id [16]byte
	_, _ = rand.Read(id[:]) // which never fails
	id[0] &= 0x7f           // no tool takes it for an option: one with a high first bit can begin with a hyphen
	var voters []string
	for i := range n {
		port, err := freePort(ctx)
		if err != nil {
			return nodes, err
		}
		voters = append(voters, net.JoinHostPort("127.0.0.1", port))
		files, err := newWorkspace("kafka", nil)
		if err != nil {
			return nodes, err
		}
		node := &kafkaNode{java: java, libs: libs, files: files, cluster: base64.RawURLEncoding.EncodeToString(id[:]), id: i + 1}
		if secured {
			if node.secured, err = freePort(ctx); err != nil {
				return append(nodes, node), err
			}
		}
		nodes = append(nodes, node)
		if err := node.listen(ctx, further); err != nil {
			return nodes, err
		}
	}
	for _, node := range nodes {
		node.voters = voters
		if err := node.format(ctx); err != nil {
			return nodes, err
		}
	}
	return nodes, nil
}

// listen finds the addresses of further listeners.
func (n *kafkaNode) listen(ctx context.Context, further []KafkaListener) error {
	for _, listener := range further {
		port, err := freePort(ctx)
		if err != nil {
			return err
		}
		address := net.JoinHostPort("127.0.0.1", port)
		advertised, err := listener.Advertise(n.id, address)
		if err != nil {
			return fmt.Errorf("testservers: the address of listener %s of %s: %w", listener.Name, kafkaName, err)
		}
		n.further = append(n.further, furtherListener{listener.Name, address, advertised})
	}
	return nil
}

// The users of a secured listener, with their passwords.
const (
	kafkaUsers = `org.apache.kafka.common.security.plain.PlainLoginModule required user_` + KafkaUser + `="` + KafkaPassword + `";`
	// KafkaUser may do what the rules of the test allow, with this password; whoever comes without a
	// login, by the other listener, may do everything.
	KafkaUser     = "relay"
	KafkaPassword = "hush"
)

// settings are the node's, with its port.
func (n *kafkaNode) settings(port string) []string {
	listeners, security := []string{"CLIENTS://127.0.0.1:" + port}, []string{"CLIENTS:PLAINTEXT", "CONTROLLER:PLAINTEXT"}
	if n.secured != "" {
		listeners, security = append(listeners, "SECURED://127.0.0.1:"+n.secured), append(security, "SECURED:SASL_PLAINTEXT")
	}
	advertised := slices.Clone(listeners)
	for _, l := range n.further {
		listeners, advertised = append(listeners, l.name+"://"+l.address), append(advertised, l.name+"://"+l.advertised)
		security = append(security, l.name+":PLAINTEXT")
	}
	listeners = append(listeners, "CONTROLLER://"+n.voters[n.id-1])
	voters := make([]string, len(n.voters))
	for i, address := range n.voters {
		voters[i] = strconv.Itoa(i+1) + "@" + address
	}
	replicas := strconv.Itoa(len(voters))
	confirming := strconv.Itoa(len(voters)/2 + 1)
	all := []string{
		"process.roles=broker,controller",
		"node.id=" + strconv.Itoa(n.id),
		"controller.quorum.voters=" + strings.Join(voters, ","),
		"controller.listener.names=CONTROLLER",
		"inter.broker.listener.name=CLIENTS",
		"listener.security.protocol.map=" + strings.Join(security, ","),
		"listeners=" + strings.Join(listeners, ","),
		"advertised.listeners=" + strings.Join(advertised, ","),
		"log.dirs=" + n.files.path("data"),
		"default.replication.factor=" + replicas,
		"min.insync.replicas=" + confirming,
		"offsets.topic.replication.factor=" + replicas,
		"offsets.topic.num.partitions=4", // of files there are 50 times three otherwise
		"transaction.state.log.replication.factor=" + replicas,
		"transaction.state.log.min.isr=" + confirming,
	}
	if len(voters) == 1 {
		all = append(all, "group.initial.rebalance.delay.ms=0") // each group of a test has to wait 3 s otherwise
	}
	if n.secured != "" {
		all = append(all, "listener.name.secured.sasl.enabled.mechanisms=PLAIN", "listener.name.secured.plain.sasl.jaas.config="+kafkaUsers,
			"authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users=User:ANONYMOUS")
	}
	return all
}

// configure writes the settings.
func (n *kafkaNode) configure(port string) error {
	text := strings.Join(append(n.settings(port), ""), "\n")
	if err := os.WriteFile(n.files.path("server.properties"), []byte(text), 0o600); err != nil {
		return fmt.Errorf("testservers: configure %s: %w", kafkaName, err)
	}
	return nil
}

// format prepares the directory of the node's data.
func (n *kafkaNode) format(ctx context.Context) error {
	if err := n.configure("0"); err != nil {
		return err
	}
	cmd := n.command(ctx, "kafka.tools.StorageTool", "format", "--cluster-id", n.cluster, "--config", n.files.path("server.properties"))
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("testservers: format the directory of %s: %w: %s", kafkaName, err, said[max(0, len(said)-logTailBytes):])
	}
	return nil
}

// command is a class of Kafka, in a small machine that starts soon.
func (n *kafkaNode) command(ctx context.Context, class string, args ...string) *exec.Cmd {
	return n.files.command(ctx, n.java, append([]string{
		"-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-cp", filepath.Join(n.libs, "*"), class,
	}, args...)...)
}

// local is the node as a server.
func (n *kafkaNode) local(ctx context.Context) *local {
	return &local{
		name:      kafkaName,
		workspace: n.files,
		command: func(port string) *exec.Cmd {
			cmd := n.command(ctx, "kafka.Kafka", n.files.path("server.properties"))
			if err := n.configure(port); err != nil {
				cmd.Err = err // of its start
			}
			return cmd
		},
		ready: func(ctx context.Context, port string, _ int) error {
			cluster, members, err := kafkaMembers(ctx, net.JoinHostPort("127.0.0.1", port))
			switch {
			case err != nil:
				return err
			case cluster != n.cluster:
				return fmt.Errorf("another server answers, of cluster %q", cluster)
			case members[int32(n.id)] == "": //nolint:gosec // a small number
				return errors.New("the node has not joined its cluster yet")
			}
			return nil
		},
		shutdown: kafkaShutdown,
	}
}
