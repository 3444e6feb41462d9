/** What a measurement has to say to a person. */
export function say(line: string): void {
  process.stdout.write(`${line}\n`);
}
