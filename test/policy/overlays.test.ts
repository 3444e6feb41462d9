import { expect, it } from 'vitest';
import { checkOverlay } from '#policy/check';
import { preparse, evaluate } from '#policy/decide';
import { shippedPolicy } from '#programs/shipped-policy';
import { NO_DELETIONS } from '../fixtures/overlays.js';
import { policyInput } from '../fixtures/policy-input.js';

const shipped = await shippedPolicy();

it('the check of an overlay rejects a rule with patterns that are slow to match', async () => {
  const like = (pattern: string) => `(context has tool && context.tool like "${pattern}")`;
  const rule = (...patterns: string[]) =>
    `forbid (principal, action, resource) when { ${patterns.map(like).join(' || ')} };`;
  const policies = {
    'overlay.prefix': rule(`${'a'.repeat(400)}*`),
    'overlay.most': rule(`*${'a'.repeat(50)}`, `b*${'a'.repeat(50)}`),
    'overlay.more': rule(`*${'a'.repeat(50)}`, `b*${'a'.repeat(51)}`),
  };
  const problems = await checkOverlay(shipped.files, policies);
  expect(problems.map(({ file }) => file)).toEqual(['overlay.more.cedar']);
});

it('the check of an overlay lets other requests run after each rule', async () => {
  const rules = (count: number): Record<string, string> =>
    Object.fromEntries(
      Array.from({ length: count }, (_, i) => [`overlay.r${i}`, NO_DELETIONS] as const),
    );
  // Warms up, because the first check also reads a file.
  await checkOverlay(shipped.files, rules(1));
  let [iterations, isChecking] = [0, true];
  const countIterations = () => {
    iterations += 1;
    if (isChecking) setImmediate(countIterations);
  };
  setImmediate(countIterations);
  await checkOverlay(shipped.files, rules(8));
  isChecking = false;
  expect(iterations).toBeGreaterThanOrEqual(8);
});

it('Cedar still evaluates the shipped policy set after the most complex rules that an overlay may have', async () => {
  const texts = [
    `${'('.repeat(46)}true${')'.repeat(46)}`,
    `${'!('.repeat(46)}true${')'.repeat(46)}`,
    `${'['.repeat(46)}1${']'.repeat(46)} == 1`,
    `${'{a:'.repeat(46)}1${'}'.repeat(46)} == 1`,
    Array(120).fill('true').join(' && '),
    `${Array(120).fill('1').join(' + ')} == 2`,
    `${'if true then '.repeat(60)}true${' else false'.repeat(60)}`,
    `context${'.a'.repeat(120)}`,
  ];
  const policies = Object.fromEntries(
    texts.map((text, i) => [
      `overlay.r${i}`,
      `forbid (principal, action, resource) when { ${text} };`,
    ]),
  );
  const problems = await checkOverlay(shipped.files, policies);
  expect(problems.filter(({ message }) => message.includes('at most'))).toEqual([]);
  const prepared = preparse('complex', { ...shipped.files, policies });
  const input = policyInput();
  expect(evaluate(prepared, input).effect).toBe('DENY');
  const again = preparse('simple', shipped.files);
  expect(evaluate(again, input).effect).toBe('ADMIT');
});
