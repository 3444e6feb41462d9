/** User-visible sentences for denial reasons other than policy ids, by prefix. */
const SENTENCES: Readonly<Record<string, (name: string) => string>> = {
  'fact.': (name) =>
    `The fact ${name} is missing, or the policy set does not declare it with the stated type.`,
  'budget.': (name) =>
    `The counter ${name} cannot count this action. The request lacks the amount, the agent or the run, the amount is negative, or the value is unknown or too large.`,
};

export const RESERVED_PREFIXES = Object.keys(SENTENCES);

export function reasonSentence(reason: string): string | undefined {
  const prefix = RESERVED_PREFIXES.find((one) => reason.startsWith(one)) ?? '';
  return SENTENCES[prefix]?.(reason.slice(prefix.length));
}
