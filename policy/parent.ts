import type { Parent } from '#sql/admissions/intake';

export type ParentFault = 'parent_not_found' | 'parent_not_admitted';

/**
 * Why the parent of a subject is invalid, or null. The parent of an outcome must be an admitted
 * action, not a denial or another outcome. An admission may follow from any proof of the tenant.
 */
export function parentFault(
  kind: 'admission' | 'outcome',
  parent: Parent | null,
): ParentFault | null {
  if (parent === null) return 'parent_not_found';
  if (kind !== 'outcome') return null;
  return parent.effect === 'ADMIT' && parent.kind === 'action' ? null : 'parent_not_admitted';
}
