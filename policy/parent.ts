import type { Parent } from '#sql/admissions/parents';

export type ParentFault = 'parent_not_found' | 'parent_not_admitted';

/**
 * What is wrong with the parent that a subject names, or null. An outcome tells what became of an
 * action that was admitted, so its parent is one: no denial, and no outcome either. An admission may
 * follow from anything that the tenant has a proof of.
 */
export function parentFault(
  kind: 'admission' | 'outcome',
  parent: Parent | null,
): ParentFault | null {
  if (parent === null) return 'parent_not_found';
  if (kind !== 'outcome') return null;
  return parent.effect === 'ADMIT' && parent.kind === 'action' ? null : 'parent_not_admitted';
}
