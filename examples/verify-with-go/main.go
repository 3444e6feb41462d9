// Checks a .tlog-proof with the packages that Go uses to check its module database, and without code of
// the service.
//
//	go run main.go <vkey> <file.tlog-proof> <file of the log entry>
package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: go run main.go <vkey> <file.tlog-proof> <file of the log entry>")
		os.Exit(2)
	}
	said, err := check(os.Args[1], os.Args[2], os.Args[3])
	if err != nil {
		fmt.Fprintln(os.Stderr, "not included:", err)
		os.Exit(1)
	}
	fmt.Println(said)
}

func check(vkey, proofFile, entryFile string) (string, error) {
	verifier, err := note.NewVerifier(vkey)
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(proofFile)
	if err != nil {
		return "", err
	}
	entry, err := os.ReadFile(entryFile)
	if err != nil {
		return "", err
	}
	index, path, signed, err := parseProof(string(text))
	if err != nil {
		return "", err
	}
	opened, err := note.Open([]byte(signed), note.VerifierList(verifier))
	if err != nil {
		return "", err
	}
	origin, size, root, err := parseCheckpoint(opened.Text)
	if err != nil {
		return "", err
	}
	// The log's key is named after its origin.
	if origin != verifier.Name() {
		return "", fmt.Errorf("the checkpoint has the origin %s, not %s", origin, verifier.Name())
	}
	if err := tlog.CheckRecord(path, size, root, index, tlog.RecordHash(entry)); err != nil {
		return "", err
	}
	return fmt.Sprintf("included: leaf %d of %d in %s", index, size, origin), nil
}

// parseProof splits a c2sp.org/tlog-proof@v1 into index, path and signed checkpoint.
func parseProof(text string) (int64, tlog.RecordProof, string, error) {
	head, signed, found := strings.Cut(text, "\n\n")
	lines := strings.Split(head, "\n")
	if !found || lines[0] != "c2sp.org/tlog-proof@v1" {
		return 0, nil, "", errors.New("not a tlog-proof")
	}
	lines = lines[1:]
	if len(lines) > 0 && strings.HasPrefix(lines[0], "extra ") {
		lines = lines[1:]
	}
	if len(lines) == 0 || !strings.HasPrefix(lines[0], "index ") {
		return 0, nil, "", errors.New("tlog-proof without an index")
	}
	index, err := strconv.ParseInt(strings.TrimPrefix(lines[0], "index "), 10, 64)
	if err != nil {
		return 0, nil, "", err
	}
	var path tlog.RecordProof
	for _, line := range lines[1:] {
		hash, err := tlog.ParseHash(line)
		if err != nil {
			return 0, nil, "", err
		}
		path = append(path, hash)
	}
	return index, path, signed, nil
}

// parseCheckpoint reads the text of a C2SP checkpoint: origin, size, root.
func parseCheckpoint(text string) (string, int64, tlog.Hash, error) {
	lines := strings.Split(text, "\n")
	if len(lines) != 4 || lines[3] != "" {
		return "", 0, tlog.Hash{}, errors.New("not a checkpoint of three lines")
	}
	size, err := strconv.ParseInt(lines[1], 10, 64)
	if err != nil {
		return "", 0, tlog.Hash{}, err
	}
	root, err := tlog.ParseHash(lines[2])
	return lines[0], size, root, err
}
