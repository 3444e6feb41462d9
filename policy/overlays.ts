import { canonicalize } from '#protocol/json';
import { activeOverlays, type OverlaySet, storeOverlaySet } from '#sql/admissions/overlays';
import { isNotCombined } from '#sql/db/errors';
import { activatePolicy, type StoredPolicySet } from '#sql/admissions/policies';
import type { Transaction } from '#sql/db/transaction';
import { AdministrationError } from '#sql/tenants/audit';
import { OVERLAY_PREFIX } from './approval.js';
import { checkOverlay, policyFile, type PolicyProblem } from './check.js';
import { digestOf, engineOf, manifestOf, PolicySetError, sentencesIn } from './policy-set.js';

/** The texts of a tenant's rules, by id. */
export type OverlayRules = Record<string, string>;

export function documentOf(rules: OverlayRules): { digest: Buffer; document: string } {
  const document = canonicalize(rules);
  return { digest: digestOf(document), document };
}

const withPrefix = (rules: OverlayRules): Record<string, string> =>
  Object.fromEntries(Object.entries(rules).map(([id, text]) => [OVERLAY_PREFIX + id, text]));

export interface OverlayProblem extends PolicyProblem {
  /** The id of the rule with the problem; null when the problem is in the operator's set. */
  rule: string | null;
}

/** The problems of an overlay under an operator's set. A new overlay must have none. */
export async function overlayProblems(
  base: StoredPolicySet,
  rules: OverlayRules,
): Promise<OverlayProblem[]> {
  const problems = await checkOverlay(base.files, withPrefix(rules));
  const ids = new Map(Object.keys(rules).map((id) => [policyFile(OVERLAY_PREFIX + id), id]));
  return problems.map((one) => ({ ...one, rule: ids.get(one.file) ?? null }));
}

/**
 * Combines an overlay with an operator's set, for the version of Cedar that runs that set. A rule that forbids
 * everything replaces each rule that is not valid under the set, so that the set never permits what that rule forbids.
 *
 * @param found the problems of these rules under this set, if the caller has already found them
 * @throws PolicySetError when the stored set was changed
 */
export async function combine(
  base: StoredPolicySet,
  rules: OverlayRules,
  found?: readonly OverlayProblem[],
): Promise<OverlaySet> {
  const engine = engineOf(base);
  if (engine === null)
    throw new PolicySetError("the operator's policy set does not match its digest");
  const problems = found ?? (await overlayProblems(base, rules));
  const errors = problems.filter(({ severity }) => severity === 'error');
  const faulty = new Set(errors.map(({ rule }) => rule));
  const unfit = Object.keys(rules).filter((id) => faulty.has(null) || faulty.has(id));
  const policies = withPrefix({
    ...rules,
    ...Object.fromEntries(unfit.map((id) => [id, inPlaceOf(id)])),
  });
  const set = { base: base.digest, policies, sentences: sentencesIn(policies), unfit };
  const manifest = manifestOf(filesOf(base, set), engine);
  return { ...set, manifest, digest: digestOf(manifest) };
}

const inPlaceOf = (id: string): string =>
  `@sentence("The rule ${id} of your overlay does not fit the policy set in force. Activate a corrected overlay.")
forbid (principal, action, resource);`;

const filesOf = (base: StoredPolicySet, set: Pick<OverlaySet, 'policies' | 'sentences'>) => ({
  ...base.files,
  policies: { ...set.policies, ...base.files.policies },
  sentences: { ...set.sentences, ...base.files.sentences },
});

export const storedSetOf = (base: StoredPolicySet, set: OverlaySet): StoredPolicySet => ({
  digest: set.digest,
  manifest: set.manifest,
  files: filesOf(base, set),
});

export const rulesOf = ({ document }: { document: string }): OverlayRules =>
  JSON.parse(document) as OverlayRules;

/** A tenant whose actions are all denied, because rules of its overlay are not valid under the operator's set. */
export interface UnfitOverlay {
  tenant_id: string;
  rules: string[];
}

/** @throws AdministrationError when a tenant activates an overlay at the same time, or when `from` has passed */
export async function activateWithOverlays(
  tx: Transaction,
  set: StoredPolicySet,
  from: Date | null = null,
): Promise<{ activeFrom: Date; unfit: UnfitOverlay[] }> {
  const unfit: UnfitOverlay[] = [];
  for (const overlay of await activeOverlays(tx)) {
    const combined = await combine(set, rulesOf(overlay));
    await storeOverlaySet(tx, overlay, combined);
    if (combined.unfit.length > 0) {
      unfit.push({ tenant_id: overlay.tenantId, rules: combined.unfit });
    }
  }
  try {
    return { activeFrom: await activatePolicy(tx, set.digest, from), unfit };
  } catch (error) {
    if (!isNotCombined(error)) throw error;
    throw new AdministrationError('a tenant activated an overlay meanwhile: repeat the command');
  }
}
