// Commands that a Go program runs: some that it talks to all the time and others that come and go.
// The runtime waits for each through a pidfd.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

type command struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func start(name string, args ...string) *command {
	c := exec.Command(name, args...)
	in, err := c.StdinPipe()
	if err == nil {
		var out io.ReadCloser
		if out, err = c.StdoutPipe(); err == nil {
			if err = c.Start(); err == nil {
				return &command{c, in, bufio.NewReader(out)}
			}
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(3)
	return nil
}

func (c *command) ask(line string) string {
	fmt.Fprintln(c.in, line)
	answer, _ := c.out.ReadString('\n')
	return answer
}

func main() {
	rounds := 1500
	if len(os.Args) > 1 {
		rounds, _ = strconv.Atoi(os.Args[1])
	}
	if times, err := strconv.Atoi(os.Getenv("ROUNDS_TIMES")); err == nil {
		rounds *= times
	}
	os.Unsetenv("ROUNDS_TIMES")
	wrong, sum := 0, uint64(1469598103934665603)
	check := func(right bool, what string) {
		if !right {
			wrong++
			fmt.Fprintln(os.Stderr, what)
		}
	}
	shell := `while read -r line; do echo "$((line * 3))"; done; exit 7`
	lasting := []*command{start("sh", "-c", shell), start("cat")}
	ended := make(chan error, 1)
	go func() { ended <- lasting[0].Wait() }()
	check(os.WriteFile("ready", nil, 0o600) == nil, "a file")
	for i := range rounds {
		check(lasting[0].ask(strconv.Itoa(i)) == fmt.Sprintln(i*3), "an answer of the shell")
		answer := lasting[1].ask(fmt.Sprint("line ", i))
		check(answer == fmt.Sprintln("line", i), "an answer of cat")
		sum = (sum ^ uint64(len(answer)+i)) * 1099511628211
		if i%50 != 0 {
			continue
		}
		passing := start("cat")
		check(passing.ask("here") == "here\n", "an answer of a passing command")
		if i%100 == 0 {
			check(passing.Process.Signal(syscall.SIGTERM) == nil, "a signal")
			passing.Wait()
			status, ok := passing.ProcessState.Sys().(syscall.WaitStatus)
			check(ok && status.Signal() == syscall.SIGTERM, "the end by a signal")
		} else {
			passing.in.Close()
			check(passing.Wait() == nil, "the end of a passing command")
		}
		select {
		case err := <-ended:
			check(false, fmt.Sprint("the shell ended: ", err))
			ended <- err
		default:
		}
	}
	for _, c := range lasting {
		c.in.Close()
	}
	check(lasting[1].Wait() == nil, "the end of cat")
	<-ended
	check(lasting[0].ProcessState.ExitCode() == 7, "the end of the shell")
	fmt.Printf("commands %016x %d wrong\n", sum, wrong)
	if wrong != 0 {
		os.Exit(1)
	}
}
