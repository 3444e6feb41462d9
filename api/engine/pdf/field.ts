/** Words of the paper's own, or a text of the document that is shown exactly. */
export type Value = { words: string } | { exact: string };

export interface Field {
  label: string;
  /** Each on a line of its own. */
  values: Value[];
}

export interface Section {
  title: string;
  intro?: string;
  fields: Field[];
}

export const exact = (text: string): Value => ({ exact: text });
export const words = (text: string): Value => ({ words: text });
export const field = (label: string, ...values: Value[]): Field => ({ label, values });
/** Nothing where there is nothing to say. */
export const given = (label: string, text: string | null | undefined): Field[] =>
  text === null || text === undefined ? [] : [field(label, exact(text))];
