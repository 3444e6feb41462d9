/** Fixed text, or text of the document that is shown exactly. */
export type Value = { words: string } | { exact: string };

export interface Field {
  label: string;
  /** Each starts on a new line. */
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
/** No field for an absent value. */
export const given = (label: string, text: string | null | undefined): Field[] =>
  text === null || text === undefined ? [] : [field(label, exact(text))];
