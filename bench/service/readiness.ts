/** How far the public can see: what `/readyz` of a facade says. */
export interface Readiness {
  generation: number;
  tree_size: number;
  proofs: number;
}

/** @throws Error when the facade serves no snapshot */
export async function readiness(publicUrl: string): Promise<Readiness> {
  const response = await fetch(`${publicUrl}/readyz`);
  const body: unknown = await response.json();
  if (response.status === 200) return body as Readiness;
  throw new Error(`the facade is not ready: ${JSON.stringify(body)}`);
}
